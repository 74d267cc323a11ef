package seccomp

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The benchmarks run real filtered programs. ns/op is the median that the program
// itself measures; allocations are those of this process.

// benchIoctls lets a program issue b.N ioctls under h.
func benchIoctls(b *testing.B, which string, h Handler) {
	b.ReportAllocs()
	p := start(b, launchConfig{}, fmt.Sprintf("ioctls %s %d", which, b.N))
	b.ResetTimer()
	reportMeasured(b, p.serve(h))
}

func reportMeasured(b *testing.B, out string) {
	ns, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(ns), "ns/op")
}

func BenchmarkIoctlUnfiltered(b *testing.B) {
	cmd := again(fmt.Sprintf("ioctls test %d", b.N))
	cmd.Stdout, cmd.Stderr = nil, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	reportMeasured(b, string(out))
}

func BenchmarkIoctlFilteredNotMatched(b *testing.B) {
	benchIoctls(b, "other", handlerFunc(func(*Notification) Answer { return Result(0) }))
}

func BenchmarkIoctlNotifyContinue(b *testing.B) {
	benchIoctls(b, "test", handlerFunc(func(*Notification) Answer { return Answer{Continue: true} }))
}

func BenchmarkIoctlNotifyReadWrite(b *testing.B) {
	benchIoctls(b, "test", handlerFunc(func(n *Notification) Answer {
		var buf [callSize]byte
		if err := n.ReadMemory(buf[:], n.Arg(2)); err != nil {
			return Fail(err)
		}
		return Fail(n.WriteMemory(buf[:], n.Arg(2)))
	}))
}

func BenchmarkIoctlNotifyDup(b *testing.B) {
	benchIoctls(b, "test", handlerFunc(func(n *Notification) Answer {
		fd, err := n.Dup(int32(n.Arg(0)))
		if err != nil {
			return Fail(err)
		}
		unix.Close(fd)
		return Result(0)
	}))
}

func BenchmarkIoctlNotifyProcess(b *testing.B) {
	benchIoctls(b, "test", handlerFunc(func(n *Notification) Answer {
		_, err := n.Process()
		return Fail(err)
	}))
}
