package privilege

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRealtime makes a thread of its own, which ends with it, real-time and usual again.
func TestRealtime(t *testing.T) {
	done := make(chan error)
	var attempt func()
	attempt = func() {
		runtime.LockOSThread() // for good
		if unix.Gettid() == os.Getpid() {
			go attempt()         // on another thread than the process's first,
			<-t.Context().Done() // which stays with this goroutine meanwhile
			return
		}
		done <- func() error {
			if err := SetRealtime(true, false); err != nil {
				return err
			}
			if yes, err := Realtime(0); err != nil || !yes {
				t.Errorf("the thread is real-time: %v, %v", yes, err)
			}
			if yes, err := Realtime(os.Getpid()); err != nil || yes {
				t.Errorf("the process's first thread is real-time: %v, %v", yes, err)
			}
			if err := SetRealtime(false, false); err != nil {
				return err
			}
			if yes, err := Realtime(unix.Gettid()); err != nil || yes {
				t.Errorf("the thread is still real-time: %v, %v", yes, err)
			}
			return nil
		}()
	}
	go attempt()
	err := <-done
	if errors.Is(err, unix.EPERM) {
		t.Skip("this machine allows no real-time threads")
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := Realtime(1 << 30); err == nil {
		t.Error("a thread that is not there has a policy")
	}
}
