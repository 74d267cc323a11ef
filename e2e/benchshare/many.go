package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// runMany runs n processes of a program that says "ready" and begins with a line of
// standard input, and is such a program itself. They end with it.
func runMany(n int, program []string) error {
	if n < 1 || len(program) == 0 {
		return errors.New("-program many needs a -count and a program")
	}
	runtime.LockOSThread() // whose death ends the children
	var inputs []io.Writer
	var outputs []*bufio.Reader
	for range n {
		cmd := exec.Command(program[0], program[1:]...)
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		inputs, outputs = append(inputs, stdin), append(outputs, bufio.NewReader(stdout))
	}
	for _, o := range outputs {
		if line, err := o.ReadString('\n'); line != "ready\n" {
			return fmt.Errorf("one of the processes said %q: %w", line, err)
		}
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	for _, i := range inputs {
		if _, err := i.Write([]byte("\n")); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, in) // until it is ended
	return err
}
