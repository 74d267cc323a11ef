package pacer

import (
	"errors"
	"os"
	"time"

	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/timeshare"
)

// restart restarts the runlist if something waits for it and there is a channel by which
// that can be done.
func (c *card) restart() error {
	if !c.waiting || c.held.File == nil {
		return nil
	}
	if err := restart(c.driver, c.held.File, c.held.Channel); err != nil {
		return err
	}
	c.waiting = false
	return nil
}

// restart restarts a runlist. It may be refused at times, and is then tried again.
func restart(d nvclient.Driver, control *os.File, ch nvclient.Channel) error {
	const tries, pause = 100, 100 * time.Microsecond
	var err error
	for i := range tries {
		err = nvclient.RestartRunlist(d, int(control.Fd()), ch)
		if !errors.Is(err, nvclient.InvalidState) {
			return err
		}
		if i >= 3 {
			doze(pause)
		}
	}
	return err
}

// beyond is the part of the card that the tenant, the first of the plan's, has right after
// its window, if those of the others whose time that is work.
func beyond(p *timeshare.Plan, windows []timeshare.Window, others []Entry) float64 {
	end := uint64(windows[0].Offset + windows[0].Length)
	turn, most := p.Settings[0].Turn, time.Duration(0)
	for i, e := range others {
		if open, _ := windows[i+1].At(end); open && e.Groups > 0 {
			most = max(most, p.Settings[i+1].Turn)
		}
	}
	return float64(turn) / float64(turn+most)
}

func planned(e Entry) timeshare.Tenant {
	return timeshare.Tenant{ID: e.ID, Class: e.Class, Core: e.Core, Groups: e.Groups}
}
