package engine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkLaunchAndWait is an empty kernel and a client that spins for its end.
func BenchmarkLaunchAndWait(b *testing.B) {
	e := New(Config{})
	defer e.Close()
	c := newClient(b, e, e.NewGroup("one"), nil)
	c.bind(1, 0xc5c0)
	c.submit()
	sem := c.data.Window(0x40, 4)
	n := uint32(0)
	for b.Loop() {
		n++
		q := qmdOf(2, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
		q.releaseV2(testData+0x40, n)
		c.launch(q)
		c.submit()
		for atomic.LoadUint32(word(sem)) != n {
		}
	}
}

// BenchmarkQueuedLaunches keeps the ring full of kernels, eight in each entry.
func BenchmarkQueuedLaunches(b *testing.B) {
	const each = 8
	e := New(Config{})
	defer e.Close()
	c := newClient(b, e, e.NewGroup("one"), nil)
	hash, _ := c.channel.codeHash(testCode)
	e.SetDuration(hash, time.Nanosecond)
	c.bind(1, 0xc5c0)
	c.submit()
	n := uint32(0)
	for i := 0; i < b.N; i += each {
		for range each {
			n++
			q := qmdOf(2, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0)
			q.releaseV2(testData+0x40, n)
			c.launch(q)
		}
		put := c.write()
		for (put+1)%testEntry == atomic.LoadUint32(word(c.userd[userdGet:])) {
			time.Sleep(20 * time.Microsecond)
		}
		atomic.StoreUint32(word(c.userd[userdPut:]), put)
	}
	for atomic.LoadUint32(word(c.userd[userdGet:])) != c.put {
		time.Sleep(20 * time.Microsecond)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "launches/s")
}

// BenchmarkIdle reports the part of a core that contexts cost which have long done
// nothing.
func BenchmarkIdle(b *testing.B) {
	for _, contexts := range []int{1, 16} {
		b.Run(fmt.Sprintf("contexts=%d", contexts), func(b *testing.B) {
			e := New(Config{})
			defer e.Close()
			for i := range contexts {
				g := e.NewGroup(i)
				for range 16 { // channels of a CUDA context
					newClient(b, e, g, nil)
				}
			}
			time.Sleep(100 * time.Millisecond)
			e.mu.Lock()
			e.poll.last -= uint64(time.Minute)
			e.mu.Unlock()
			before := cpuTime(b)
			begin := time.Now()
			for b.Loop() {
				time.Sleep(time.Second)
			}
			b.ReportMetric(100*float64(cpuTime(b)-before)/float64(time.Since(begin)), "%core")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
