package engine

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/qgpu-project/qgpu/internal/simgpu/gpumem"
)

// await waits until the word is v, for as long as tests may last.
func await(t testing.TB, w *uint32, v uint32) {
	for begin := time.Now(); atomic.LoadUint32(w) != v; time.Sleep(50 * time.Microsecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("the word is %d after a minute, want %d", atomic.LoadUint32(w), v)
		}
	}
}

// TestLiveCard has clients come, work, control each other's groups and go, at once.
func TestLiveCard(t *testing.T) {
	e := New(Config{RestartFailures: 100})
	t.Cleanup(e.Close)
	var clients, controls sync.WaitGroup
	stop := make(chan struct{})
	controls.Go(func() {
		for last := uint64(0); ; {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
			}
			_ = e.RestartRunlist()
			e.Utilization(time.Second)
			e.Samples()
			now := e.Now()
			if now < last {
				t.Errorf("the clock went back from %d to %d", last, now)
			}
			last = now
		}
	})
	for owner := range 4 {
		clients.Go(func() {
			for range 3 {
				lifeOfAClient(t, e, owner)
			}
		})
	}
	clients.Wait()
	close(stop)
	controls.Wait()
	if n := len(e.Used()); n != 0 {
		t.Errorf("%d owners are left", n)
	}
}

func lifeOfAClient(t *testing.T, e *Engine, owner int) {
	g := e.NewGroup(owner)
	defer g.Close()
	var interrupts atomic.Uint32
	var released atomic.Bool
	userd := shared(t, gpumem.PageSize)
	release, err := userd.Hold()
	if err != nil {
		t.Error(err)
		return
	}
	c := newClient(t, e, g, func(cfg *ChannelConfig) {
		cfg.USERD = userd.Window(0, userdSize)
		cfg.Interrupt = func() { interrupts.Add(1) }
		cfg.Release = func() { release(); released.Store(true) }
	})
	userd.Close()
	g.SetTimeslice(uint64(100 * (owner + 1)))
	c.bind(1, 0xc5c0)
	c.bind(4, 0xc5b5)
	sem := word(c.data.Window(0x40, 4))
	for n := range uint32(20) {
		q := qmdOf(2, [3]uint32{100, 1, 1}, [3]uint32{256, 1, 1}, 0)
		q.releaseV2(testData+0x80, n)
		c.launch(q)
		c.copyMethods(testData+0x80, testData+0x1000, 0, 0, 4, 1, pitchLayouts)
		c.method(1, computeReport, testData>>32, 0x40, n+1, reportOneWord|reportAwaken)
		c.submit()
		e.Kick()
		await(t, sem, n+1)
		if got := c.word(testData + 0x1000); got != n {
			t.Errorf("copied %d, want %d", got, n)
		}
	}
	c.channel.Close()
	if !released.Load() {
		t.Error("USERD was not released")
	}
}

func TestInterruptsAreDelivered(t *testing.T) {
	e := New(Config{})
	t.Cleanup(e.Close)
	raised := make(chan struct{}, 1)
	c := newClient(t, e, e.NewGroup("one"), func(cfg *ChannelConfig) { cfg.Interrupt = func() { raised <- struct{}{} } })
	for range 10 {
		c.method(0, hostNonStallIntr, 0)
		c.submit()
		select {
		case <-raised:
		case <-time.After(time.Minute):
			t.Fatal("no interrupt came")
		}
	}
}

func TestFaultsAreDelivered(t *testing.T) {
	e := New(Config{})
	t.Cleanup(e.Close)
	faults := make(chan error, 2)
	c := newClient(t, e, e.NewGroup("one"), func(cfg *ChannelConfig) { cfg.Fault = func(err error) { faults <- err } })
	c.semRelease(0x1000, 1)
	c.submit()
	select {
	case <-faults:
	case <-time.After(time.Minute):
		t.Fatal("no fault came")
	}
}

// TestViewFaultCostsOneChannel unmaps a channel's USERD under it, as no caller should.
func TestViewFaultCostsOneChannel(t *testing.T) {
	e := New(Config{})
	t.Cleanup(e.Close)
	userd := shared(t, gpumem.PageSize)
	faults := make(chan error, 1)
	g := e.NewGroup("one")
	newClient(t, e, g, func(cfg *ChannelConfig) {
		cfg.USERD = userd.Window(0, userdSize)
		cfg.Fault = func(err error) { faults <- err }
	})
	other := newClient(t, e, g, nil)
	userd.Close()
	select {
	case <-faults:
	case <-time.After(time.Minute):
		t.Fatal("no fault came")
	}
	other.semRelease(testData, 1)
	other.submit()
	await(t, word(other.data.Window(0, 4)), 1)
}

func TestNewChannelRefuses(t *testing.T) {
	b := newBench(t, Config{})
	g := b.card.NewGroup("one")
	foreign := newBench(t, Config{}).card.NewGroup("one")
	good := ChannelConfig{Group: g, Space: gpumem.NewSpace(), Entries: 8, USERD: make([]byte, userdSize)}
	tests := map[string]func(*ChannelConfig){
		"no group":              func(c *ChannelConfig) { c.Group = nil },
		"another card's group":  func(c *ChannelConfig) { c.Group = foreign },
		"no space":              func(c *ChannelConfig) { c.Space = nil },
		"no entries":            func(c *ChannelConfig) { c.Entries = 0 },
		"too little USERD":      func(c *ChannelConfig) { c.USERD = c.USERD[:100] },
		"USERD out of position": func(c *ChannelConfig) { c.USERD = make([]byte, userdSize+1)[1:] },
	}
	if _, err := b.card.NewChannel(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range tests {
		cfg := good
		spoil(&cfg)
		if _, err := b.card.NewChannel(cfg); err == nil {
			t.Errorf("a channel with %s was made", name)
		}
	}
	g.Close()
	if _, err := b.card.NewChannel(good); err == nil {
		t.Error("a channel of a closed group was made")
	}
}

// TestManyEndlessChannels has more channels with endless work than a turn of the loop
// has time for, and one that wants little: it is served while they all go on.
func TestManyEndlessChannels(t *testing.T) {
	e := New(Config{})
	t.Cleanup(e.Close)
	g := e.NewGroup("many")
	const channels = 16
	var busy []*client
	for range channels {
		c := newClient(t, e, g, nil)
		c.bind(4, 0xc5b5)
		for range 4 {
			c.copyMethods(testData, testData+testSize/2, 0, 0, testSize/4, 1, pitchLayouts)
		}
		c.semRelease(testData+testSize-8, 1)
		for range 60 {
			c.words = append(c.words, make([]uint32, 1000)...) // nothing, many times
		}
		c.submit()
		busy = append(busy, c)
	}
	small := newClient(t, e, e.NewGroup("small"), nil)
	for n := range uint32(20) {
		small.semRelease(testData, n+1)
		small.submit()
		await(t, word(small.data.Window(0, 4)), n+1)
	}
	for _, c := range busy {
		await(t, word(c.userd[userdGet:]), 1)
	}
}
