package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"text/template"

	"golang.org/x/sys/unix"
)

// results are all samples: times of ioctls, CUDA and launches in nanoseconds,
// of host programs in seconds.
type results struct {
	native, filtered, mediated sample
	driver                     pair

	init, context, cycle, launch pair
	launchTime                   pair // processor time

	unfiltered, container []pair // by hostPrograms; the tenant is the second of each

	memory processes
}

//go:embed report.md.tmpl
var reportText string

// row is a line of a table.
type row struct{ What, Without, Container, With, Ratio, Aim string }

func (p pair) row(what string, scale float64, unit, aim string) row {
	return row{What: what, Without: p.without.show(scale, unit), With: p.with.show(scale, unit), Ratio: p.ratios(), Aim: aim}
}

// page is what the template shows.
type page struct {
	Cores, Rounds              int
	Kernel, Load               string
	Native, Filtered, Mediated string
	Driver                     row
	CUDA, Programs, Memory     []row
}

func (r *results) write(w io.Writer, rounds int) error {
	const micro, milli = 1e-3, 1e-6
	p := page{
		Cores: runtime.NumCPU(), Kernel: kernelRelease(), Load: loadAverage(), Rounds: rounds,
		Native: r.native.show(micro, "µs"), Filtered: r.filtered.show(micro, "µs"), Mediated: r.mediated.show(micro, "µs"),
		Driver: r.driver.row("", micro, "µs", ""),
		CUDA: []row{
			r.init.row("loading libcuda and cuInit", milli, "ms", ""),
			r.context.row("cuCtxCreate", milli, "ms", ""),
			r.cycle.row("cuMemAlloc and cuMemFree of 4 MiB, each of 1,000", micro, "µs", r.cycle.aim(1.3)),
			r.launchTime.row("cuLaunchKernel, each of 10,000: processor time", micro, "µs", r.launchTime.aim(1.01)),
			r.launch.row("the same on the clock, until all are done", micro, "µs", ""),
		},
	}
	for i, program := range hostPrograms {
		line := r.unfiltered[i].row(program.name, 1e3, "ms", r.unfiltered[i].aim(1.03))
		line.Container = r.container[i].without.show(1e3, "ms")
		line.Ratio += " | " + r.container[i].ratios()
		p.Programs = append(p.Programs, line)
	}
	const mib = 1.0 / 1024
	for _, m := range []struct {
		what string
		memory
	}{{"mediator", r.memory.mediator}, {"simulator", r.memory.simulator}} {
		p.Memory = append(p.Memory, row{
			What: m.what, Without: digits(m.rss * mib), Container: digits(m.pss * mib), With: digits(m.private * mib),
			Aim: memoryAim(m.what, m.pss*mib),
		})
	}
	t, err := template.New("report").Parse(reportText)
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}

// memoryAim is for the mediator alone: there is one for each tenant.
func memoryAim(what string, pss float64) string {
	const most = 12 // MiB
	switch {
	case what != "mediator":
		return ""
	case pss < most:
		return "< 12 MiB: met"
	}
	return "< 12 MiB: **not met**"
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	// Major and minor number say enough of a machine that is nobody's in particular.
	release := unix.ByteSliceToString(u.Release[:])
	if i := slices.IndexFunc([]byte(release), func(c byte) bool { return c != '.' && (c < '0' || c > '9') }); i > 0 {
		release = release[:i]
	}
	return release
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	var one string
	fmt.Sscan(string(text), &one)
	return one
}
