package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Service is a long-running program of the cluster, whose output goes to a log.
type Service struct {
	Name    string
	log     string // folder of its log
	command func() *exec.Cmd
	start   func(*exec.Cmd) error

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
}

const stopTimeout = 20 * time.Second

// Start starts the program. The log of an earlier run is continued.
func (s *Service) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true // a terminal's Ctrl-C is not for it
	if err := s.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
	return nil
}

// Ended is closed when the program has ended.
func (s *Service) Ended() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Stop asks the program to end and waits for that. One that does not is killed, which
// is an error.
func (s *Service) Stop() error { return s.signal(syscall.SIGTERM) }

// Kill ends the program as kill -9 does.
func (s *Service) Kill() error { return s.signal(syscall.SIGKILL) }

func (s *Service) signal(signal syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", s.Name, err)
	}
	select {
	case <-s.ended:
		return nil
	case <-time.After(stopTimeout):
		s.cmd.Process.Kill()
		<-s.ended
		return fmt.Errorf("%s did not end within %v of signal %d", s.Name, stopTimeout, signal)
	}
}

// LogFile is the file of the program's output.
func (s *Service) LogFile() string { return filepath.Join(s.log, s.Name+".log") }

// LogTail is the last of the program's output, for an error.
func (s *Service) LogTail() string {
	text, err := os.ReadFile(s.LogFile())
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("the last of %s:\n%s", s.LogFile(), text[max(0, len(text)-4000):])
}
