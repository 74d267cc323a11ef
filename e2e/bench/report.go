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

	wall, processor []pair // by hostPrograms

	memory processes
}

//go:embed report.md.tmpl
var reportText string

// row is a line of a table.
type row struct{ What, Without, With, Ratio, Aim string }

// aim says what a ratio should be and whether it is.
func aim(r sample, most float64) string {
	if r.median() <= most {
		return fmt.Sprintf("≤ %.2f: met", most)
	}
	return fmt.Sprintf("≤ %.2f: **not met**", most)
}

func (p pair) row(what string, scale float64, unit, aim string) row {
	return row{what, p.without.show(scale, unit), p.with.show(scale, unit), p.ratio().show(1, "×"), aim}
}

func (r *results) write(w io.Writer, rounds int) error {
	const micro, milli = 1e-3, 1e-6
	type program struct {
		Name, Args string
	}
	data := struct {
		Cores            int
		Kernel           string
		Load             string
		Rounds           int
		Native, Filtered string
		Mediated         string
		Driver           row
		CUDA, Processor  []row
		Wall             []row
		Memory           []row
	}{
		Cores: runtime.NumCPU(), Kernel: kernelRelease(), Load: loadAverage(), Rounds: rounds,
		Native: r.native.show(micro, "µs"), Filtered: r.filtered.show(micro, "µs"), Mediated: r.mediated.show(micro, "µs"),
		Driver: r.driver.row("NV_ESC_SYS_PARAMS, on the simulated driver", micro, "µs", ""),
		CUDA: []row{
			r.init.row("loading libcuda and cuInit", milli, "ms", ""),
			r.context.row("cuCtxCreate", milli, "ms", ""),
			r.cycle.row("cuMemAlloc and cuMemFree of 4 MiB, each of 1,000", micro, "µs", aim(r.cycle.ratio(), 1.3)),
			r.launch.row("cuLaunchKernel, each of 10,000, until all are done", micro, "µs", aim(r.launch.ratio(), 1.01)),
		},
	}
	for i, p := range hostPrograms {
		data.Processor = append(data.Processor, r.processor[i].row(p.name, 1e3, "ms", aim(r.processor[i].ratio(), 1.03)))
		data.Wall = append(data.Wall, r.wall[i].row(p.name, 1e3, "ms", ""))
	}
	const mib = 1.0 / 1024
	for _, m := range []struct {
		what string
		memory
	}{{"mediator", r.memory.mediator}, {"simulator", r.memory.simulator}} {
		data.Memory = append(data.Memory, row{m.what, digits(m.rss * mib), digits(m.pss * mib), digits(m.private * mib), memoryAim(m.what, m.pss*mib)})
	}
	t, err := template.New("report").Parse(reportText)
	if err != nil {
		return err
	}
	return t.Execute(w, data)
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
