package engine

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/simgpu/engine/runlist"
)

// worker keeps a channel supplied with kernels of one length.
type worker struct {
	*client
	group *Group
}

func newWorker(b *bench, owner Owner, us uint64, length time.Duration) *worker {
	g := b.card.NewGroup(owner)
	g.SetTimeslice(us)
	w := &worker{newClient(b.t, b.card, g, nil), g}
	// Code of its own, so that it has a duration of its own.
	w.setWord(testCode, uint32(length))
	hash, _ := w.channel.codeHash(testCode)
	b.card.SetDuration(hash, length)
	w.bind(1, 0xc5c0)
	w.submit()
	return w
}

// feed keeps two kernels in the ring.
func (w *worker) feed() {
	for (w.put+testEntry-w.channel.position)%testEntry < 2 {
		w.launch(qmdOf(2, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0))
		w.submit()
	}
}

// work lets the card run for d, with all workers busy.
func (b *bench) work(d time.Duration, workers ...*worker) {
	for end := b.host.now + uint64(d); b.host.now < end; {
		for _, w := range workers {
			w.feed()
		}
		b.pass(50_000)
	}
}

func share(u Utilization, o Owner) float64 { return float64(u.ByOwner[o]) / float64(u.Window) }

func TestSharesOfChannels(t *testing.T) {
	b := newBench(t, Config{})
	long := newWorker(b, "long", 1000, 20*time.Millisecond)
	short := newWorker(b, "short", 3000, 100*time.Microsecond)
	b.work(2*time.Second, long, short)
	u := b.card.Utilization(time.Second)
	if s := share(u, "long"); s < 0.24 || s > 0.26 {
		t.Errorf("the long kernels had %.3f of the card, want a quarter", s)
	}
	if s := share(u, "short"); s < 0.735 || s > 0.76 {
		t.Errorf("the short kernels had %.3f of the card, want three quarters", s)
	}
	if u.ByOwner["long"]+u.ByOwner["short"] != u.Busy {
		t.Errorf("owners add up to %v, the card was busy for %v", u.ByOwner["long"]+u.ByOwner["short"], u.Busy)
	}
}

// TestSharesOnALateHost has a host that stands still now and then: the card loses time,
// and shares are as they were.
func TestSharesOnALateHost(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := newBench(t, Config{})
		one := newWorker(b, "one", 1000, 3*time.Millisecond)
		two := newWorker(b, "two", 1000, 700*time.Microsecond)
		begin, host := b.card.Now(), b.host.now
		for range rapid.IntRange(2, 6).Draw(r, "pauses") {
			b.work(20*time.Millisecond, one, two)
			b.host.now += rapid.Uint64Range(0, 300_000_000).Draw(r, "pause")
		}
		b.work(20*time.Millisecond, one, two)
		used := b.card.Used()
		if d := (used["one"] - used["two"]).Abs(); d > 13*time.Millisecond {
			r.Errorf("the owners used %v and %v", used["one"], used["two"])
		}
		if card, host := b.card.Now()-begin, b.host.now-host; card > host {
			r.Errorf("%d ns passed on the card, %d on the host", card, host)
		}
	})
}

func TestNowNeverGoesBackNorPastWork(t *testing.T) {
	b := newBench(t, Config{})
	w := newWorker(b, "one", 1000, time.Millisecond)
	b.work(time.Millisecond, w) // now the context is loaded
	b.pass(3_000_000)
	w.launch(qmdOf(2, [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0))
	w.submit()
	b.turn()
	begin := b.card.Now()
	last := begin
	for range 100 {
		b.host.now += 100_000
		now := b.card.Now()
		if now < last {
			t.Fatalf("the clock went back from %d to %d", last, now)
		}
		last = now
	}
	if last != begin+1_000_000 {
		t.Errorf("the clock is %d ns on, with a kernel of 1 ms not done", last-begin)
	}
	b.turn()
	if now := b.card.Now(); now != last {
		t.Errorf("the clock jumped by %d ns over the time that the host was late", now-last)
	}
	b.pass(1_000_000)
	if now := b.card.Now(); now != last+1_000_000 {
		t.Errorf("idle, the clock moved by %d ns in 1 ms", now-last)
	}
}

func TestDisabledChannels(t *testing.T) {
	b := newBench(t, Config{})
	one := newWorker(b, "one", 1000, 3*time.Millisecond)
	two := newWorker(b, "two", 1000, 3*time.Millisecond)
	used := func() time.Duration {
		before := b.card.Used()["one"]
		b.work(60*time.Millisecond, one, two)
		return b.card.Used()["one"] - before
	}
	b.card.DisableChannels(true, one.channel)
	if u := used(); u < 25*time.Millisecond {
		t.Errorf("disabled without a restart, the channel had %v of 60 ms", u)
	}
	if err := b.card.RestartRunlist(); err != nil {
		t.Fatal(err)
	}
	if u := used(); u != 0 {
		t.Errorf("disabled, the channel had %v", u)
	}
	b.card.DisableChannels(false, one.channel)
	if err := b.card.RestartRunlist(); err != nil {
		t.Fatal(err)
	}
	if u := used(); u < 25*time.Millisecond {
		t.Errorf("enabled again, the channel had %v of 60 ms", u)
	}
	if one.channel.fault != nil {
		t.Error(one.channel.fault)
	}
}

func TestRestartFailsAtTimes(t *testing.T) {
	failures := func(rate int, seed uint64) (n int) {
		b := newBench(t, Config{RestartFailures: rate, Seed: seed})
		for range 1000 {
			switch err := b.card.RestartRunlist(); {
			case errors.Is(err, ErrInvalidState):
				n++
			case err != nil:
				t.Fatal(err)
			}
		}
		return n
	}
	if n := failures(0, 1); n != 0 {
		t.Errorf("%d restarts failed, want none", n)
	}
	first := failures(270, 1)
	if first < 200 || first > 340 {
		t.Errorf("%d of 1000 restarts failed, want about 270", first)
	}
	if again := failures(270, 1); again != first {
		t.Errorf("the same seed gave %d failures and then %d", first, again)
	}
}

func TestSamples(t *testing.T) {
	b := newBench(t, Config{})
	w := newWorker(b, "one", 1000, 2*time.Millisecond)
	b.work(600*time.Millisecond, w)
	b.pass(600_000_000)
	s := b.card.Samples()
	if len(s) != 7 {
		t.Fatalf("%d samples after 1.2 s, want 7", len(s))
	}
	for i, sample := range s {
		busy := float64(sample.Busy) / float64(sample.Period)
		if sample.Busy != sample.ByOwner["one"] {
			t.Errorf("sample %d: %v by the one owner, %v in all", i, sample.ByOwner["one"], sample.Busy)
		}
		if i < 3 && busy < 0.97 || i > 3 && busy != 0 {
			t.Errorf("sample %d is busy to %.3f", i, busy)
		}
		if i > 0 && sample.End-s[i-1].End != uint64(sample.Period) {
			t.Errorf("sample %d ends %d ns after the one before", i, sample.End-s[i-1].End)
		}
	}
}

// TestMeter compares the meter with a list of intervals.
func TestMeter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRing(1000, 100, 8)
		now := uint64(1000)
		type interval struct{ from, to uint64 }
		var all []interval
		for range rapid.IntRange(0, 30).Draw(t, "intervals") {
			from := now + rapid.Uint64Range(0, 300).Draw(t, "gap")
			now = from + rapid.Uint64Range(0, 500).Draw(t, "length")
			r.add("one", from, now)
			all = append(all, interval{from, now})
		}
		r.reach(r.number(now))
		for n := r.last - min(r.last, 7); n <= r.last; n++ {
			from, want := 1000+100*n, uint64(0)
			for _, i := range all {
				if low, high := max(i.from, from), min(i.to, from+100); low < high {
					want += high - low
				}
			}
			if got := r.slots[n%8]["one"]; got != want {
				t.Errorf("period %d has %d, want %d", n, got, want)
			}
		}
	})
}

func TestTimeslices(t *testing.T) {
	b := newBench(t, Config{})
	g := b.card.NewGroup("one")
	if us := g.Timeslice(); us != runlist.DefaultTimeslice {
		t.Errorf("a new group's slice is %d µs", us)
	}
	g.SetTimeslice(0)
	if us := g.Timeslice(); us != runlist.MinTimeslice {
		t.Errorf("a slice of 0 became %d µs", us)
	}
	g.SetTimeslice(1 << 63)
	if us := g.Timeslice(); us != runlist.MaxTimeslice {
		t.Errorf("an endless slice became %d µs", us)
	}
}

func TestGridTime(t *testing.T) {
	chip := TeslaT4()
	const wave = waveCycles * 1000 / 1590
	one := [3]uint32{1, 1, 1}
	tests := []struct {
		name string
		k    kernel
		want uint64
	}{
		{"one block", kernel{grid: one, block: one}, launchTime + wave},
		{"a full wave", kernel{grid: [3]uint32{160, 1, 1}, block: [3]uint32{256, 1, 1}}, launchTime + wave},
		{"one block more", kernel{grid: [3]uint32{161, 1, 1}, block: [3]uint32{256, 1, 1}}, launchTime + 2*wave + 1},
		{"registers limit", kernel{grid: [3]uint32{80, 1, 1}, block: [3]uint32{256, 1, 1}, registers: 255}, launchTime + 2*wave + 1},
		{"shared memory limits", kernel{grid: [3]uint32{80, 1, 1}, block: [3]uint32{32, 1, 1}, shared: 40000}, launchTime + 2*wave + 1},
		{"nothing", kernel{}, launchTime},
		{"everything", kernel{grid: [3]uint32{1 << 31, 65535, 65535}, block: [3]uint32{1024, 1024, 64}}, launchTime + maxTime},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := chip.gridTime(tt.k); got != tt.want {
				t.Errorf("takes %d ns, want %d", got, tt.want)
			}
		})
	}
}
