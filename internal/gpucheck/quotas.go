package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/qgpu-project/qgpu/internal/isolation"
)

// quotas tries every path of allocation in a tenant of its own, so that one that
// hangs or crashes leaves the others.
func (c *check) quotas(ctx context.Context) {
	for _, p := range isolation.Paths() {
		trials, raw, err := ask[[]isolation.Trial](ctx, c.site, c.site.tenant(ctx, quota,
			c.site.program("cudaload"), "paths", "--only", p.Name, "--within", "128Mi", "--limit", "8Gi"))
		if err == nil {
			err = judge(trials)
		}
		answer := "no card memory, works"
		if err == nil && !p.Host {
			answer = fmt.Sprintf("refused after %d MiB, all came back", trials[0].Taken/mib)
		}
		c.answer("quota holds: "+p.Name, answer, raw, err)
	}
}

func judge(trials []isolation.Trial) error {
	if len(trials) != 1 {
		return fmt.Errorf("%d trials were made in place of one", len(trials))
	}
	t := trials[0]
	switch {
	case t.Error != "":
		return errors.New(t.Error)
	case !t.Within:
		return errors.New("does not work within the quota")
	case !t.Over:
		return errors.New("is not refused over the quota")
	case t.Taken > quotaMiB*mib:
		return fmt.Errorf("took %d MiB of a quota of %d", t.Taken/mib, quotaMiB)
	case t.Leaked != 0:
		return fmt.Errorf("%d bytes did not come back", t.Leaked)
	}
	return nil
}

// filled is what cudaload fill prints.
type filled struct {
	Allocated, Total uint64
	Error            string
}

// neighbours runs two tenants at once: each has its own quota and processes only,
// and one that is full does not hinder the other.
func (c *check) neighbours(ctx context.Context) {
	var full []*background
	defer func() {
		for _, b := range full {
			b.stop()
		}
	}()
	for i, memory := range []uint64{3 << 10, 2 << 10} {
		name := []string{"first", "second"}[i]
		b, err := start(c.site.tenant(ctx, fmt.Sprintf("%dMi", memory), c.site.program("cudaload"), "fill", "--chunk", "256Mi", "--hold",
			"--run", `echo '"'$(nvidia-smi --query-compute-apps=pid --format=csv,noheader)'"'; echo $PPID`))
		if err != nil {
			c.answer("two tenants at once: the "+name, "", "", err)
			continue
		}
		full = append(full, b)
		got, err := next[filled](b)
		if err == nil && (got.Total != memory*mib || !strings.HasSuffix(got.Error, "CUDA_ERROR_OUT_OF_MEMORY")) {
			err = fmt.Errorf("sees %d MiB and ends with %q", got.Total/mib, got.Error)
		}
		c.answer("two tenants at once: the "+name+" has its own quota", fmt.Sprintf("%d MiB of %d", got.Allocated/mib, memory), fmt.Sprintf("%+v", got), err)
		pids, err1 := next[string](b)
		own, err2 := next[int](b)
		err = errors.Join(err1, err2)
		if err == nil && strings.TrimSpace(pids) != strconv.Itoa(own) {
			err = fmt.Errorf("nvidia-smi lists processes %q in place of %d alone", pids, own)
		}
		c.answer("two tenants at once: the "+name+" sees its own processes only", fmt.Sprintf("process %d", own), pids, err)
	}
	c.given(ctx, full)
}

// given kills both tenants and looks whether the card is as before.
func (c *check) given(ctx context.Context, full []*background) {
	const question = "after kill -9 the card's memory is free again"
	used := func() (int, error) {
		out, err := c.site.run(ctx, c.site.bare(ctx, "nvidia-smi", "--id="+c.site.card, "--query-gpu=memory.used", "--format=csv,noheader,nounits"))
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(out))
	}
	before, err := used()
	if err != nil {
		c.skip(question, abridge(err.Error()))
		return
	}
	for _, b := range full {
		b.stop()
	}
	var after int
	const held = 4 << 10 // MiB that the two held at least
	for range 50 {
		if after, err = used(); err != nil || after+held <= before {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err == nil && after+held > before {
		err = fmt.Errorf("%d MiB are in use, %d before the kill", after, before)
	}
	c.answer(question, fmt.Sprintf("%d MiB in use, %d before", after, before), "", err)
}
