package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// products are the names and memory, in MiB, of the models.
var products = map[string]struct {
	name   string
	memory int
	sms    int
	major  int
	watts  int
}{
	"t4":   {"Tesla T4", 15360, 40, 7, 70},
	"a100": {"NVIDIA A100-SXM4-40GB", 40960, 108, 8, 400},
}

// alone runs program on simulated cards of its own, without a mediator.
func (m *machine) alone(c config, program ...string) result {
	m.t.Helper()
	args := []string{"run", "--cards", fmt.Sprint(max(c.cards, 1)), "--model", c.model, "--driver-version", c.driver, "--"}
	return m.run("qgpu-sim", append(args, program...)...)
}

// TestNvidiaSMI runs the real nvidia-smi in its forms on each card and driver.
func TestNvidiaSMI(t *testing.T) {
	m := newMachine(t, config{})
	for _, c := range variants {
		p := products[c.model]
		forms := []struct {
			args string
			want []string
		}{
			{"", []string{p.name[:6], fmt.Sprintf("0MiB / %dMiB", p.memory), fmt.Sprintf("W / %dW", p.watts), "No running processes found"}},
			{"-L", []string{"GPU 0: " + p.name + " (UUID: GPU-"}},
			{"-q", []string{"Product Name", p.name, "FB Memory Usage", fmt.Sprintf("%d MiB", p.memory), "Performance State"}},
			{"--query-gpu=name,memory.total,memory.used,utilization.gpu,pci.bus_id --format=csv,noheader,nounits",
				[]string{fmt.Sprintf("%s, %d, 0, 0, 00000000:", p.name, p.memory)}},
			{"pmon -c 1", []string{"# gpu"}},
			{"dmon -c 1", []string{"# gpu"}},
		}
		for _, f := range forms {
			t.Run(c.String()+" "+f.args, func(t *testing.T) {
				r := m.alone(c, append([]string{"nvidia-smi"}, strings.Fields(f.args)...)...)
				if r.code != 0 {
					t.Errorf("nvidia-smi %s exited with %d: %s%s", f.args, r.code, r.stdout, r.stderr)
				}
				said := strings.Join(strings.Fields(r.stdout), " ") // columns differ in width
				for _, want := range f.want {
					if !strings.Contains(said, want) {
						t.Errorf("nvidia-smi %s does not say %q:\n%s", f.args, want, r.stdout)
					}
				}
				if strings.Contains(r.stdout, "ERR!") {
					t.Errorf("nvidia-smi %s shows an error:\n%s", f.args, r.stdout)
				}
			})
		}
	}
}

// TestCUDA runs libcuda: what it reports, launches, and every allocation path.
func TestCUDA(t *testing.T) {
	m := newMachine(t, config{})
	for _, c := range variants {
		t.Run(c.String(), func(t *testing.T) {
			p := products[c.model]
			info := decode[[]struct {
				Name                string
				Multiprocessors     int
				Major, Minor, Total int `json:"-"`
				ComputeMajor        int `json:"compute_major"`
			}](t, m.alone(c, m.program("cudaload"), "info").stdout)
			if len(info) != 1 || info[0].Name != p.name || info[0].Multiprocessors != p.sms || info[0].ComputeMajor != p.major {
				t.Errorf("CUDA sees %+v, want one %s", info, p.name)
			}
			r := m.alone(c, m.program("cudaload"), "launch", "--count", "1000")
			launched := decode[struct {
				Count  int
				CardNS int64 `json:"card_ns"`
			}](t, r.stdout)
			if launched.Count != 1000 || launched.CardNS <= 0 {
				t.Errorf("1000 launches: %+v", launched)
			}
		})
	}
}

// TestMixedCards runs CUDA on several cards of different models.
func TestMixedCards(t *testing.T) {
	m := newMachine(t, config{cards: 3, model: "t4,a100"})
	smi := m.mustRun("qgpu-sim", "run", "--", "nvidia-smi", "-L")
	for i, name := range []string{"Tesla T4", "NVIDIA A100-SXM4-40GB", "Tesla T4"} {
		if want := fmt.Sprintf("GPU %d: %s (UUID: GPU-", i, name); !strings.Contains(smi, want) {
			t.Errorf("nvidia-smi -L does not say %q:\n%s", want, smi)
		}
	}
	type card struct{ Name string }
	if cards := decode[[]card](t, m.mustRun("qgpu-sim", "run", "--", m.program("cudaload"), "info")); len(cards) != 3 {
		t.Errorf("CUDA sees %d cards, want 3", len(cards))
	}

	t.Run("a tenant sees its own card alone", func(t *testing.T) {
		m.t = t
		for i, name := range []string{"Tesla T4", "NVIDIA A100-SXM4-40GB"} {
			args := []string{"run", "--driver", "simulated", "--memory", "2Gi", "--card", fmt.Sprint(i), "--"}
			cards := decode[[]card](t, m.mustRun("qgpu", append(args, m.program("cudaload"), "info")...))
			if len(cards) != 1 || cards[0].Name != name {
				t.Errorf("a tenant on card %d sees %+v", i, cards)
			}
			list := m.mustRun("qgpu", append(args, "sh", "-c", "LC_ALL=C ls /dev | grep nvidia; ls /proc/driver/nvidia/gpus | wc -l")...)
			want := fmt.Sprintf("nvidia-uvm\nnvidia-uvm-tools\nnvidia%d\nnvidiactl\n1\n", i)
			if list != want {
				t.Errorf("a tenant on card %d has these files:\n%swant:\n%s", i, list, want)
			}
		}
	})
	t.Run("a tenant of two cards", func(t *testing.T) {
		m.t = t
		out := m.mustRun("qgpu", "run", "--driver", "simulated", "--core", "200", "--", m.program("cudaload"), "info")
		if cards := decode[[]card](t, out); len(cards) != 2 {
			t.Errorf("a tenant of two whole cards sees %d", len(cards))
		}
	})
}

// TestRootless runs a program on simulated cards as nobody.
func TestRootless(t *testing.T) {
	m := newMachine(t, config{})
	home, err := os.MkdirTemp("", "qgpu-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	const nobody = 65534
	if err := os.Chown(home, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := m.command("qgpu-sim", "run", "--", m.program("cudaload"), "fill", "--run", "id -u; nvidia-smi -L")
	cmd.Env = append(cmd.Env, "HOME="+home, "QGPU_SIM_DIR="+filepath.Join(home, "sim"))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	r := m.finish(cmd)
	if r.code != 0 || !strings.Contains(r.stdout, `"error":"cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"`) || !strings.Contains(r.stdout, "\n65534\nGPU 0: Tesla T4") {
		t.Errorf("exited with %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

// TestSimulatorErrors checks that bad input is answered with what to do.
func TestSimulatorErrors(t *testing.T) {
	m := newMachine(t, config{})
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"started twice", []string{"start"}, "a simulator runs in"},
		{"too many cards", []string{"run", "--cards", "17", "--", "true"}, "choose 1 to 16"},
		{"unknown model", []string{"run", "--model", "h100", "--", "true"}, "t4"},
		{"unknown driver", []string{"run", "--driver-version", "470", "--", "true"}, "make nvidia-userspace"},
		{"no program", []string{"run", "--", "no-such-program"}, "no-such-program: no such program in PATH"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := m.run("qgpu-sim", tt.args...)
			if r.code != 1 || !strings.Contains(r.stderr, tt.want) || strings.Count(r.stderr, "\n") != 1 {
				t.Errorf("exited with %d and said %q, want one line with %q", r.code, r.stderr, tt.want)
			}
		})
	}
	if r := m.run("qgpu-sim", "run", "--", "sh", "-c", "exit 42"); r.code != 42 {
		t.Errorf("a program that exits with 42 exits with %d", r.code)
	}
	if r := m.run("qgpu-sim", "run", "--cards", "1", "--", "sh", "-c", "kill -TERM $$"); r.code != 128+15 {
		t.Errorf("a program that SIGTERM ends exits with %d, want 143", r.code)
	}
}
