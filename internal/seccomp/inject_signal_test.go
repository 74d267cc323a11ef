package seccomp

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Signals to the supervisor's threads, of which Go's runtime sends many, must not
// keep a descriptor from the caller: it would get the number 0 in its place.
func TestInjectionUnderSignals(t *testing.T) {
	end := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				signalThreads(t, unix.SIGURG)
			}
		}
	})
	f := fileOf(t, "/made/up")
	const opens = 400
	for range 5 {
		got := run(t, launchConfig{}, "open"+strings.Repeat(" /made/up", opens), handlerFunc(func(*Notification) Answer {
			return Answer{Inject: int(f.Fd()), Cloexec: true}
		}))
		const right = "\"/made/up\" <nil> cloexec=true"
		if n := strings.Count(got, right); n != opens {
			t.Fatalf("%d of %d files were opened: %.200q", n, opens, strings.ReplaceAll(got, right, ""))
		}
	}
	close(end)
	storm.Wait()
}

// signalThreads sends s to all threads of this process.
func signalThreads(t *testing.T, s unix.Signal) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Error(err)
	}
	for _, e := range threads {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			_ = unix.Tgkill(unix.Getpid(), id, s) // it may have ended
		}
	}
}
