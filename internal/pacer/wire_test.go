package pacer

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/share"
)

// packetPair is a connection of sequenced packets.
func packetPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return conns[0], conns[1]
}

// fakeMediator has one card, 1, and a control file.
type fakeMediator struct {
	tenant  Tenant
	applied Applied
	orders  chan Order
}

func (m *fakeMediator) Tenant() Tenant { return m.tenant }

func (m *fakeMediator) Apply(o Order) (Applied, error) {
	m.orders <- o
	if o.Card != 1 {
		return Applied{}, errors.New("no such card")
	}
	return m.applied, nil
}

func newFakeMediator(t *testing.T) *fakeMediator {
	control, err := os.Create(filepath.Join(t.TempDir(), "control"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := control.WriteString("the control file"); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	process := os.NewFile(uintptr(pidfd), "process")
	return &fakeMediator{
		tenant: Tenant{Share: share.Share{Core: 30, Memory: share.GiB}, Groups: []int{2, 0}},
		applied: Applied{
			Restart: true, Channel: nvclient.Channel{Client: 1, Handle: 2}, File: control, Process: process,
			Channels: slices.Repeat([]nvclient.Channel{{Client: ^uint32(0), Handle: ^uint32(0)}}, 2*maxChannels),
		},
		orders: make(chan Order, 1),
	}
}

func TestOrders(t *testing.T) {
	ours, theirs := packetPair(t)
	m := newFakeMediator(t)
	served := make(chan error, 1)
	go func() { served <- NewServer(theirs, m).Serve() }()
	l := newLink(ours)
	told, read := make(chan Tenant, 1), make(chan error, 1)
	go func() { read <- l.read(func(t Tenant) { told <- t }) }()

	if err := l.hello(); err != nil {
		t.Fatal(err)
	}
	if got := <-told; got.Share != m.tenant.Share || !slices.Equal(got.Groups, m.tenant.Groups) {
		t.Errorf("the tenant is told as %+v", got)
	}
	want := Order{Card: 1, Turn: 5000, Gated: true, Afresh: true}
	a, err := l.order(want)
	if err != nil {
		t.Fatal(err)
	}
	if got := <-m.orders; got != want || !a.Restart || a.Channel != m.applied.Channel || len(a.Channels) != maxChannels {
		t.Errorf("the order %+v came as %+v, the answer is %+v with %d channels", want, got, a.Channel, len(a.Channels))
	}
	text := make([]byte, 16)
	if _, err := a.File.ReadAt(text, 0); err != nil || string(text) != "the control file" {
		t.Errorf("the control file has %q (%v)", text, err)
	}
	if ends(a.Process) {
		t.Error("the control file's process has ended")
	}
	a.Close()
	if _, err := l.order(Order{Card: 2}); err == nil || !strings.Contains(err.Error(), "no such card") {
		t.Errorf("a refused order is answered with %v", err)
	}
	theirs.Close()
	if err := <-read; err != nil {
		t.Errorf("the mediator's end is the error %v", err)
	}
	if _, err := l.order(want); !errors.Is(err, errMediatorGone) {
		t.Errorf("an order after its end: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if _, err := m.applied.File.Stat(); err == nil {
		t.Error("the mediator keeps the control file")
	}
}

func FuzzReceive(f *testing.F) {
	for _, seed := range []string{`{"order":{"card":1,"turn":5}}`, `{"tenant":{"groups":[1]}}`, `{`, `{"applied":{"channels":[{}]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 32<<10 {
			return
		}
		ours, theirs := packetPair(t)
		if _, _, err := theirs.WriteMsgUnix(data, nil, nil); err != nil {
			t.Fatal(err)
		}
		if p, file, err := receive(ours, make([]byte, maxPacket)); len(file) > 0 {
			t.Errorf("a file came out of nothing: %+v, %v", p, err)
		}
	})
}
