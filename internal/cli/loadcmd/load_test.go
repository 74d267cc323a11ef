package loadcmd

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestSum(t *testing.T) {
	got := sum([]loaded{
		{Kernels: 2, Elapsed: 400, Kernel: 50, GPUTime: 100, Samples: []int64{50, 60}},
		{Kernels: 3, Elapsed: 300, Kernel: 40, GPUTime: 120, Samples: []int64{40, 70, 90}},
	})
	want := loaded{
		Kernels: 5, Elapsed: 400, Kernel: 40, GPUTime: 220, Part: 0.55, Samples: []int64{40, 50, 60, 70, 90},
		Latency: latency{P50: 60, P90: 70, P99: 70, Max: 90},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestLoadOptions(t *testing.T) {
	good := loadOptions{seconds: 1, pattern: graphs, blocks: 1, streams: 1, processes: 1, kernel: time.Millisecond}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*loadOptions){
		"--pattern":   func(o *loadOptions) { o.pattern = "x" },
		"--seconds":   func(o *loadOptions) { o.seconds = 0 },
		"--blocks":    func(o *loadOptions) { o.blocks = 0 },
		"--streams":   func(o *loadOptions) { o.streams = 0 },
		"--processes": func(o *loadOptions) { o.processes = maxProcesses + 1 },
	} {
		o := good
		change(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
