package qgpucmd

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/qgpu-project/qgpu/internal/share"
)

// demoSeconds is how long each scene of compute is measured, on the card's clock.
const demoSeconds = "2"

// demoLoad is what a load says of itself.
type demoLoad struct {
	Part    float64 `json:"part"`
	Latency struct {
		P50, P99 time.Duration
	} `json:"latency_ns"`
}

// compute shows tenants that are held to their share of the card's time.
func (d *demo) compute() error {
	d.say("Compute: a tenant of 25 %% and one of 75 %%, both always busy, and then the first alone")
	fmt.Fprintf(d.out, "$ qgpu %s\n", strings.Join(d.loadArgs("--core", "25", "--policy", "…"), " "))
	t := tabwriter.NewWriter(d.out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "POLICY\t25 % TENANT\t75 % TENANT\t25 % TENANT ALONE\t")
	for _, s := range []struct {
		policy             share.Policy
		small, large, idle int
	}{
		{share.BestEffort, 50, 50, 100}, {share.BurstShare, 25, 75, 100}, {share.FixedShare, 25, 75, 25},
	} {
		both, err := d.loads([]string{"--core", "25", "--policy", string(s.policy)}, []string{"--core", "75", "--policy", string(s.policy)})
		if err != nil {
			return err
		}
		alone, err := d.loads([]string{"--core", "25", "--policy", string(s.policy)})
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", s.policy, asked(both[0], s.small), asked(both[1], s.large), asked(alone[0], s.idle))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return d.onlineFirst()
}

// asked writes a measured part beside the one asked for, in percent.
func asked(l demoLoad, percent int) string {
	return fmt.Sprintf("%.1f %% of %d %%", 100*l.Part, percent)
}

// onlineFirst shows an offline tenant that gives way.
func (d *demo) onlineFirst() error {
	d.say("An offline tenant takes half of what is idle, until an online one comes")
	offline, online := []string{"--class", "offline", "--core", "50"}, []string{"--class", "online"}
	alone, err := d.loads(offline)
	if err != nil {
		return err
	}
	both, err := d.loads(offline, online)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(d.out, 0, 8, 3, ' ', 0)
	fmt.Fprintf(t, "\tOFFLINE\tONLINE\tA KERNEL OF THE ONLINE TENANT\t\n")
	fmt.Fprintf(t, "offline alone\t%s\t\t\t\n", asked(alone[0], 50))
	fmt.Fprintf(t, "both\t%s\t%s\tp50 %v, p99 %v\t\n", asked(both[0], 0), asked(both[1], 100),
		both[1].Latency.P50.Round(time.Microsecond), both[1].Latency.P99.Round(time.Microsecond))
	return t.Flush()
}

func (d *demo) loadArgs(flags ...string) []string {
	args := append([]string{"run", "--driver", d.driver, "--card", "0", "--memory", "2Gi"}, flags...)
	return append(args, "--", "cudaload", "load", "--wait", "--json", "--seconds", demoSeconds)
}

// loads runs a load for each list of flags of qgpu run, all at the same time.
func (d *demo) loads(flags ...[]string) ([]demoLoad, error) {
	var tenants []*demoTenant
	defer func() {
		for _, t := range tenants {
			t.end()
		}
	}()
	for _, f := range flags {
		t, err := d.startLoad(f)
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, t)
	}
	for _, t := range tenants {
		t.say("go")
	}
	out := make([]demoLoad, len(tenants))
	for i, t := range tenants {
		if err := json.Unmarshal([]byte(t.line()), &out[i]); err != nil {
			return nil, fmt.Errorf("a load did not tell what it had: %w", err)
		}
	}
	return out, nil
}

// startLoad starts a load that waits for a line.
func (d *demo) startLoad(flags []string) (*demoTenant, error) {
	cmd := d.command("qgpu", d.loadArgs(flags...)...)
	cmd.Env = append(cmd.Env, "PATH="+d.bin+":"+os.Getenv("PATH"))
	cmd.Stderr = os.Stderr
	t := &demoTenant{cmd: cmd}
	var err error
	if t.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.stdout = bufio.NewScanner(stdout)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if line := t.line(); line != "ready" {
		t.end()
		return nil, fmt.Errorf("the load did not start: %q", line)
	}
	return t, nil
}
