package placementcmd

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress shows how far a series is: one line that is rewritten on a terminal, and
// elsewhere a line for each tenth.
type progress struct {
	w        io.Writer
	terminal bool
	began    time.Time
	n, of    int
}

func newProgress(w io.Writer, of int) *progress {
	p := &progress{w: w, began: time.Now(), of: of}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progress) step(what string) {
	p.n++
	left := time.Duration(float64(time.Since(p.began)) / float64(p.n) * float64(p.of-p.n)).Round(time.Second)
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r%d of %d runs, %s left: %s\033[K", p.n, p.of, left, what)
	case p.n*10/p.of != (p.n-1)*10/p.of:
		fmt.Fprintf(p.w, "%d of %d runs, %s left\n", p.n, p.of, left)
	}
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\033[K")
	}
}
