// Command attacker is a program that tries to get more out of its card than its share. It
// runs as a tenant, makes the driver's system calls itself, with hostile arguments,
// and prints one line of JSON that says how many tries it made and which of them
// got through. It then keeps what it holds until its standard input closes, so that
// others can compare what the driver counts with what is charged.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
)

// report is what an attack tells.
type report struct {
	Tries   int      `json:"tries"`
	Through int      `json:"through"` // tries that had the forbidden effect
	Worked  int      `json:"worked"`  // calls that are allowed and succeeded
	Held    uint64   `json:"held"`    // bytes of the card's memory that objects of this process have
	Notes   []string `json:"notes,omitempty"`
	Client  uint32   `json:"client,omitempty"` // RM client, for others to guess
	Process int      `json:"process"`
	Child   int      `json:"child,omitempty"`
	NoI386  bool     `json:"no_i386,omitempty"` // this kernel has no i386 calls
	// Interrupted calls were repeated by the program.
	Interrupted int `json:"interrupted,omitempty"`
}

// maxNotes bounds the notes: an attack that gets through does so thousands of times.
const maxNotes = 20

func (r *report) note(format string, args ...any) {
	if len(r.Notes) < maxNotes {
		r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
	}
}

// forbidden counts a try of something that must not happen.
func (r *report) forbidden(happened bool, format string, args ...any) {
	r.Tries++
	if happened {
		r.Through++
		r.note(format, args...)
	}
}

// allowed counts something that must work.
func (r *report) allowed(worked bool, format string, args ...any) {
	if worked {
		r.Worked++
		return
	}
	r.note("did not work: "+format, args...)
}

// attacks are the attacks by name.
var attacks = map[string]func(r *report, args []string) error{
	"flip-class":   flipClass,
	"flip-size":    flipSize,
	"flip-control": flipControl,
	"flip-file":    flipFile,
	"flip-mapping": flipMapping,
	"numbers":      numbers,
	"conventions":  conventions,
	"guess":        guess,
	"nodes":        nodes,
	"surroundings": surroundings,
	"schedule":     schedule,
	"freeze":       freeze,
	"exports":      exports,
	"unknown":      unknown,
	"filters":      filters,
	"send":         send,
	"receive":      receive,
	"outsider":     outsider,
	"managed":      managed,
	"parents":      parents,
	"hold":         hold,
	"child":        child,
	"generations":  generations,
	"closes":       closes,
	"threads":      threads,
	"churn":        churn,
	"storm":        storm,
}

func main() {
	// The main thread makes the calls: it is the one that signals interrupt.
	runtime.LockOSThread()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || attacks[args[0]] == nil {
		return fmt.Errorf("name an attack, not %q", args)
	}
	r := report{Process: os.Getpid()}
	if err := attacks[args[0]](&r, args[1:]); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return tell(&r)
}

// tell prints the report and waits until standard input closes.
func tell(r *report) error {
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
