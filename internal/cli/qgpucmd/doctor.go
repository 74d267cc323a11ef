package qgpucmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/cli"
	"github.com/qgpu-project/qgpu/internal/gpucheck"
	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/seccomp"
	"github.com/qgpu-project/qgpu/internal/simgpu/host"
	"github.com/qgpu-project/qgpu/internal/tenant"
	"github.com/qgpu-project/qgpu/internal/userspace"
)

// finding is one line of the doctor's report.
type finding struct {
	what  string
	value string
	grade grade
	todo  string // what to do, unless fine
}

type grade string

const (
	fine    grade = "ok"
	lacking grade = "note" // something optional is missing
	failing grade = "FAIL"
)

func (o *options) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine can run tenants, and say what to do if not",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			failed := false
			for _, f := range o.diagnose(c.Context()) {
				fmt.Fprintf(c.OutOrStdout(), "%-4s  %-18s %s\n", f.grade, f.what, f.value)
				if f.grade != fine {
					fmt.Fprintf(c.OutOrStdout(), "      %-18s %s\n", "", f.todo)
				}
				failed = failed || f.grade == failing
			}
			if failed {
				return &cli.ExitError{Code: 1}
			}
			return nil
		},
	}
}

func (o *options) diagnose(ctx context.Context) []finding {
	findings := []finding{privileges()}
	findings = append(findings, kernelFeatures()...)
	driver := kernelDriver()
	findings = append(findings, driver, deviceFiles(), o.shares(driver), o.simulator(), nvidiaUserSpace(), o.failures())
	return append(findings, runc(ctx)...)
}

func privileges() finding {
	f := finding{what: "privileges", value: fmt.Sprintf("user id %d", os.Geteuid()), grade: fine}
	if os.Geteuid() != 0 {
		f.grade, f.todo = lacking, "qgpu run needs root (sudo); qgpu-sim run does not"
	}
	return f
}

func kernelFeatures() []finding {
	features, err := seccomp.ProbeFeatures()
	f := finding{what: "kernel", value: features.KernelVersion, grade: fine}
	if err != nil {
		f.grade, f.value, f.todo = failing, err.Error(), "run Linux 5.19 or newer with CONFIG_SECCOMP_FILTER"
		return []finding{f}
	}
	if missing := features.Missing(); len(missing) > 0 {
		f.grade = failing
		f.value += ": lacks " + strings.Join(missing, ", ")
		f.todo = "run Linux 5.19 or newer with CONFIG_SECCOMP_FILTER"
	}
	return []finding{f}
}

func kernelDriver() finding {
	f := finding{what: "NVIDIA driver", grade: fine}
	text, err := os.ReadFile("/proc/driver/nvidia/version")
	if errors.Is(err, os.ErrNotExist) {
		f.grade, f.value, f.todo = lacking, "none is loaded", "load NVIDIA's kernel module, or use simulated cards (--driver simulated)"
		return f
	}
	if err != nil {
		f.grade, f.value, f.todo = failing, err.Error(), "make /proc/driver/nvidia/version readable"
		return f
	}
	text = regexp.MustCompile(`\b\d{3}\.\d+(\.\d+)?\b`).Find(text)
	v, err := nvabi.ParseVersion(string(text))
	if err == nil {
		_, err = nvabi.For(v)
	}
	if err != nil {
		f.grade, f.value, f.todo = failing, err.Error(), "use a driver of a branch that is known"
		return f
	}
	f.value = v.String() + ", of a known branch"
	return f
}

// deviceFiles checks that mediators, which are not root, may open the device files.
func deviceFiles() finding {
	f := finding{what: "device files", value: "none", grade: fine}
	paths, _ := filepath.Glob("/dev/nvidia[0-9]*")
	for _, path := range append(paths, "/dev/nvidiactl", "/dev/nvidia-uvm") {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		f.value = "open to everybody"
		if info.Mode().Perm()&0o006 != 0o006 {
			f.grade, f.value = failing, fmt.Sprintf("%s has mode %v", path, info.Mode().Perm())
			f.todo = "mediators run without privileges: load the driver with NVreg_DeviceFileMode=0666 (tenants themselves never get the files)"
			return f
		}
	}
	return f
}

// failures reports mediators that did not end as they should.
func (o *options) failures() finding {
	f := finding{what: "mediators", value: "none failed", grade: fine}
	r, err := tenant.OpenRegistry(o.stateDir)
	if err != nil {
		f.value = "no state yet"
		return f
	}
	if logs := r.Failures(); len(logs) > 0 {
		f.grade, f.value = lacking, fmt.Sprintf("%d failed", len(logs))
		f.todo = "see " + strings.Join(logs, ", ") + "; remove these files when done"
	}
	return f
}

// shares tells what the last gpu-check found out about sharing the card's compute. driver is
// what is known of the driver.
func (o *options) shares(driver finding) finding {
	f := finding{what: "shares of compute", grade: fine}
	r, err := gpucheck.Recorded(o.stateDir)
	switch {
	case err != nil:
		f.grade, f.value, f.todo = lacking, err.Error(), "run hack/gpu-check"
	case r == nil && driver.grade != fine:
		f.value = "no card to check; simulated cards have time slices and gates"
	case r == nil:
		f.grade, f.value = lacking, "never checked: whether this card obeys time slices and gates is not known"
		f.todo = "run hack/gpu-check, as root, while the card is idle; until then do not rely on shares of compute"
	default:
		judge(&f, r, driver)
	}
	return f
}

// judge puts the verdict of a check into a finding.
func judge(f *finding, r *gpucheck.Report, driver finding) {
	f.value = fmt.Sprintf("%s, as checked on %s with driver %s", r.Mechanisms, r.Date.Format(time.DateOnly), r.Driver)
	if r.Simulated {
		f.value += " on a simulated card"
	}
	var missing []string
	if !r.Mechanisms.Slices {
		missing = append(missing, "shares of compute do not hold without time slices")
	}
	if !r.Mechanisms.Gates {
		missing = append(missing, "fixed-share and caps of offline tenants do not hold without gates")
	}
	if len(missing) > 0 {
		f.grade, f.todo = lacking, strings.Join(missing, "; ")+": see hack/gpu-check's table"
		return
	}
	if known := driver.grade == fine; known && (r.Simulated || !strings.HasPrefix(driver.value, r.Driver+",")) {
		f.grade, f.todo = lacking, "that was another driver: run hack/gpu-check again"
	}
}

func (o *options) simulator() finding {
	f := finding{what: "simulated cards", grade: fine}
	info, err := host.Client{Dir: o.simDir}.Info()
	if err != nil {
		f.value = "not running; started when needed"
		return f
	}
	f.value = fmt.Sprintf("%s, driver %s", strings.Join(info.Models, ", "), info.Version)
	return f
}

func nvidiaUserSpace() finding {
	f := finding{what: "NVIDIA user space", grade: fine}
	u, err := userspace.Find("")
	if err != nil {
		f.grade, f.value, f.todo = lacking, "not fetched", "simulated cards need it: make nvidia-userspace"
		return f
	}
	f.value = fmt.Sprintf("%s in %s", u.Version, u.Dir)
	return f
}

var (
	runcVersion    = regexp.MustCompile(`runc version (\S+)`)
	seccompVersion = regexp.MustCompile(`libseccomp: (\S+)`)
)

// runc reports the container runtime that containers on this machine would use.
func runc(ctx context.Context) []finding {
	out, err := exec.CommandContext(ctx, "runc", "--version").Output()
	if err != nil {
		return []finding{{what: "runc", value: "not found", grade: lacking, todo: "containers need runc 1.1 or newer; qgpu run does not"}}
	}
	find := func(re *regexp.Regexp) string {
		if m := re.FindSubmatch(out); m != nil {
			return string(m[1])
		}
		return "unknown"
	}
	path, _ := exec.LookPath("runc")
	return []finding{
		{what: "runc", value: find(runcVersion) + " in " + filepath.Dir(path), grade: fine},
		{what: "libseccomp", value: find(seccompVersion), grade: fine},
	}
}
