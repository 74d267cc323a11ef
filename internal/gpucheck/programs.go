package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/qgpu-project/qgpu/internal/discovery"
	"github.com/qgpu-project/qgpu/internal/nvabi"
)

// The share that programs are tried on: room for a context and some work.
const (
	quota    = "4Gi"
	quotaMiB = 4 << 10
	mib      = 1 << 20
)

// driver asks which driver and cards there are. Without an answer nothing else can
// be asked.
func (c *check) driver(ctx context.Context) bool {
	const question = "driver and cards answer our own client"
	inventory, raw, err := ask[discovery.Inventory](ctx, c.site, c.site.client(ctx, c.site.program("qgpu-runtime"), "cards"))
	c.report.Driver = inventory.Version
	for _, card := range inventory.Cards {
		c.report.Cards = append(c.report.Cards, fmt.Sprintf("%d: %s, %d MiB, %s, %s", card.Minor, card.Name, card.Total/mib, card.Address, card.UUID))
	}
	if err == nil && len(inventory.Cards) == 0 {
		err = errors.New("the driver tells of no card")
	}
	if !c.answer(question, fmt.Sprintf("%d cards", len(inventory.Cards)), raw, err) {
		return false
	}
	c.site.card = inventory.Cards[0].UUID
	v, err := nvabi.ParseVersion(inventory.Version)
	answer := ""
	if err == nil {
		var abi *nvabi.ABI
		if abi, err = nvabi.For(v); err == nil {
			answer = fmt.Sprintf("%s, by the table of %s", v, abi.Version)
		}
	}
	return c.answer("driver version is known", answer, inventory.Version, err)
}

// programs tries NVIDIA's and other programs, first bare.
func (c *check) programs(ctx context.Context) {
	c.nvidiaSMI(ctx)
	for _, args := range [][]string{
		{"info"}, {"fill", "--chunk", "256Mi"}, {"launch", "--count", "1000"}, {"cycles", "--count", "100"},
	} {
		c.cudaload(ctx, args)
	}
	c.pytorch(ctx)
}

func (c *check) nvidiaSMI(ctx context.Context) {
	const question = "nvidia-smi in a tenant shows the quota as the card's memory"
	query := []string{"nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"}
	// All cards are asked for: the tenant must see one.
	if _, err := c.site.run(ctx, c.site.bare(ctx, query...)); err != nil {
		c.skip(question, "it does not run without a mediator: "+abridge(err.Error()))
		return
	}
	out, err := c.site.run(ctx, c.site.tenant(ctx, quota, query...))
	if err == nil && strings.TrimSpace(out) != strconv.Itoa(quotaMiB) {
		err = fmt.Errorf("shows %q MiB in place of one card of %d", strings.TrimSpace(out), quotaMiB)
	}
	c.answer(question, strings.TrimSpace(out)+" MiB", out, err)
}

func (c *check) cudaload(ctx context.Context, args []string) {
	question := "CUDA in a tenant: " + args[0]
	program := append([]string{c.site.program("cudaload")}, args...)
	// A bare fill would take all of a card that others may use.
	if args[0] != "fill" {
		if _, err := c.site.run(ctx, c.site.bare(ctx, program...)); err != nil {
			c.skip(question, "it does not run without a mediator: "+abridge(err.Error()))
			return
		}
	}
	out, err := c.site.run(ctx, c.site.tenant(ctx, quota, program...))
	c.answer(question, "runs", out, err)
}

// torchProgram prints the card's memory as PyTorch sees it, after using it.
const torchProgram = `import torch
x = torch.ones(1 << 20, device="cuda")
assert float((x + x).sum()) == float(2 << 20)
print(torch.cuda.get_device_properties(0).total_memory)`

func (c *check) pytorch(ctx context.Context) {
	const question = "PyTorch in a tenant computes and sees the quota"
	if c.site.simulated {
		c.skip(question, "kernels compute nothing on a simulated card")
		return
	}
	program := []string{"python3", "-c", torchProgram}
	if _, err := c.site.run(ctx, c.site.bare(ctx, program...)); err != nil {
		c.skip(question, "it does not run without a mediator: "+abridge(err.Error()))
		return
	}
	out, err := c.site.run(ctx, c.site.tenant(ctx, quota, program...))
	if total, parseErr := strconv.Atoi(strings.TrimSpace(out)); err == nil && (parseErr != nil || total != quotaMiB*mib) {
		err = fmt.Errorf("sees %q bytes in place of %d", strings.TrimSpace(out), quotaMiB*mib)
	}
	c.answer(question, "computes; "+strings.TrimSpace(out)+" bytes", out, err)
}
