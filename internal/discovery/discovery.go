// Package discovery asks a machine's driver for its cards and their health. The
// question is put by another process, `qgpu-runtime cards`, which on a simulated
// driver runs as its client: the calls are the same whoever answers them. It knows
// nothing of tenants.
package discovery

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/qgpu-project/qgpu/internal/nvabi"
	"github.com/qgpu-project/qgpu/internal/nvclient"
)

// Inventory is what `qgpu-runtime cards` prints: a driver and its cards.
type Inventory struct {
	Version string          `json:"version"`
	Cards   []nvclient.Card `json:"cards"`          // that work
	Lost    []LostCard      `json:"lost,omitempty"` // that the driver lists and cannot use
}

// LostCard is a card that does not work.
type LostCard struct {
	Minor   int    `json:"minor"` // of /dev/nvidiaN
	Address string `json:"address"`
	Reason  string `json:"reason"`
}

// Source is where a machine's cards are found.
type Source struct {
	Runtime string // path of qgpu-runtime
	// Simulator is the path of qgpu-sim and SimDir the folder of its running service;
	// without a Simulator the kernel's driver is asked.
	Simulator string
	SimDir    string
}

// OnDriver is the command line that runs args as a client of the source's driver.
func (s Source) OnDriver(args ...string) []string {
	if s.Simulator == "" {
		return args
	}
	return append([]string{s.Simulator, "attach", "--dir", s.SimDir, "--no-paths", "--"}, args...)
}

// Read asks for the cards once.
func (s Source) Read(ctx context.Context) (Inventory, error) {
	var inv Inventory
	args := s.OnDriver(s.Runtime, "cards")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return inv, fmt.Errorf("list the cards: %s", complaint(&stderr, err))
	}
	if err := json.Unmarshal(out, &inv); err != nil {
		return inv, fmt.Errorf("list the cards: %w", err)
	}
	return inv, nil
}

// Watch reports the cards, and again whenever they or their health change, until ctx ends
// or the driver cannot be asked any more, which is the error.
func (s Source) Watch(ctx context.Context, report func(Inventory)) error {
	args := s.OnDriver(s.Runtime, "cards", "--watch")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stderr tail
	cmd.Stderr = &stderr
	// The process ends when its input does, so that it does not outlive this one.
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("watch the cards: %w", err)
	}
	readErr := readInventories(out, report)
	if readErr != nil {
		cmd.Cancel() // it would wait for its reader for ever
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if readErr != nil {
		return fmt.Errorf("watch the cards: %w", readErr)
	}
	return fmt.Errorf("watch the cards: %s", complaint(&stderr.Buffer, err))
}

// maxLine bounds one inventory, in bytes. A card takes less than 1 KiB.
const maxLine = 1 << 20

func readInventories(r io.Reader, report func(Inventory)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var inv Inventory
		if err := json.Unmarshal(lines.Bytes(), &inv); err != nil {
			return fmt.Errorf("read the cards: %w", err)
		}
		report(inv)
	}
	return lines.Err()
}

// complaint is why a process failed.
func complaint(stderr *bytes.Buffer, err error) string {
	if text := strings.TrimSpace(stderr.String()); text != "" {
		return text
	}
	if err == nil {
		return "the process that asks the driver has ended"
	}
	return err.Error()
}

// tail keeps the end of what a long-lived process complains of.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	if t.Len()+len(p) > most {
		t.Reset()
	}
	if len(p) > most {
		t.Buffer.Write(p[len(p)-most:])
		return len(p), nil
	}
	return t.Buffer.Write(p)
}

// Survey is the inventory of the driver that this very process reaches. The client that it
// returns has the cards that work, and is the caller's to close.
func Survey(d nvclient.Driver) (*nvclient.Client, Inventory, error) {
	c, lost, err := nvclient.Survey(d)
	if err != nil {
		return nil, Inventory{}, err
	}
	inv := Inventory{Version: c.Version().String(), Cards: c.Cards()}
	for _, l := range lost {
		inv.Lost = append(inv.Lost, LostCard{Minor: l.Card.Minor, Address: l.Card.Address, Reason: l.Err.Error()})
	}
	return c, inv, nil
}

// Follow surveys d and calls report with what it finds, now and whenever that changes. The
// cards' files stay open between looks, every so often, so that the driver keeps the cards
// running; when one of them stops answering all are surveyed anew, until all work again. It returns when ctx ends.
func Follow(ctx context.Context, d nvclient.Driver, every time.Duration, report func(Inventory) error) error {
	var client *nvclient.Client
	var last []byte
	whole := false
	defer func() {
		if client != nil {
			client.Close()
		}
	}()
	look := time.NewTicker(every)
	defer look.Stop()
	for {
		if !whole || !answers(client) {
			if client != nil {
				client.Close()
				client = nil
			}
			var inv Inventory
			var err error
			if client, inv, err = Survey(d); err != nil {
				return err
			}
			whole = len(inv.Lost) == 0
			now, err := json.Marshal(lasting(inv))
			if err != nil {
				return err
			}
			if !bytes.Equal(now, last) {
				if err := report(inv); err != nil {
					return err
				}
				last = now
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

func answers(c *nvclient.Client) bool {
	for i := range c.Cards() {
		if c.Check(i) != nil {
			return false
		}
	}
	return true
}

// lasting is inv without what changes at any moment.
func lasting(inv Inventory) Inventory {
	out := inv
	out.Cards = nil
	for _, c := range inv.Cards {
		c.Free = 0
		out.Cards = append(out.Cards, c)
	}
	return out
}

// DriverVersion parses the inventory's version.
func (i Inventory) DriverVersion() (nvabi.Version, error) {
	if i.Version == "" {
		return nvabi.Version{}, errors.New("the driver told no version")
	}
	return nvabi.ParseVersion(i.Version)
}
