package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// machine is simulated cards with a registry of tenants, of one test alone.
type machine struct {
	t        testing.TB
	bin      string
	stateDir string
	simDir   string
}

// config says what a machine simulates.
type config struct {
	cards  int    // default 1
	model  string // default t4
	driver string // default 535
}

func (c config) String() string {
	return fmt.Sprintf("%s-%s", c.model, c.driver)
}

// variants are the cards and drivers that everything must work on.
var variants = []config{
	{model: "t4", driver: "535"}, {model: "t4", driver: "550"},
	{model: "a100", driver: "535"}, {model: "a100", driver: "550"},
}

// newMachine starts a simulator. It ends with the test.
func newMachine(t testing.TB, c config) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to start tenants")
	}
	bin, err := filepath.Abs("../bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(bin, "qgpu")); err != nil {
		t.Fatalf("the programs are not built (%v); run make build", err)
	}
	// Sockets' names are short; t.TempDir's would not be.
	dir, err := os.MkdirTemp("", "qgpu-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, bin: bin, stateDir: filepath.Join(dir, "state"), simDir: filepath.Join(dir, "sim")}
	args := []string{"start", "--cards", fmt.Sprint(max(c.cards, 1)), "--model", or(c.model, "t4"), "--driver-version", or(c.driver, "535")}
	m.mustRun("qgpu-sim", args...)
	t.Cleanup(func() {
		if t.Failed() {
			m.dumpLogs()
		}
		m.run("qgpu-sim", "stop")
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return m
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (m *machine) dumpLogs() {
	logs, _ := filepath.Glob(filepath.Join(m.stateDir, "tenants", "*", "mediator.log"))
	for _, path := range append(logs, filepath.Join(m.simDir, "simgpu.log")) {
		if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
			m.t.Logf("%s:\n%s", path, text[max(0, len(text)-8000):])
		}
	}
}

// command is a command of the built program name on m.
func (m *machine) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(m.bin, name), args...)
	cmd.Env = append(os.Environ(), "QGPU_STATE_DIR="+m.stateDir, "QGPU_SIM_DIR="+m.simDir)
	return cmd
}

// result is how a program ended.
type result struct {
	code           int
	stdout, stderr string
}

const patience = 2 * time.Minute // far longer than anything takes, also on a busy machine

func (m *machine) run(name string, args ...string) result {
	m.t.Helper()
	return m.finish(m.command(name, args...))
}

func (m *machine) finish(cmd *exec.Cmd) result {
	m.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatalf("%s: %v", cmd, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func (m *machine) mustRun(name string, args ...string) string {
	m.t.Helper()
	r := m.run(name, args...)
	if r.code != 0 {
		m.t.Fatalf("%s %s exited with %d: %s%s", name, strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// tenantArgs are the arguments of qgpu that run program on a share.
func tenantArgs(memory string, program ...string) []string {
	return append([]string{"run", "--driver", "simulated", "--memory", memory, "--"}, program...)
}

// tenant runs program to its end on a share of so much memory.
func (m *machine) tenant(memory string, program ...string) result {
	m.t.Helper()
	return m.run("qgpu", tenantArgs(memory, program...)...)
}

func (m *machine) mustTenant(memory string, program ...string) string {
	m.t.Helper()
	return m.mustRun("qgpu", tenantArgs(memory, program...)...)
}

func (m *machine) program(name string) string { return filepath.Join(m.bin, name) }

// background is a tenant that runs beside the test.
type background struct {
	m      *machine
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string
	stderr *bytes.Buffer
	ended  bool
}

// start runs program as a tenant beside the test; it is killed when that ends.
func (m *machine) start(memory string, program ...string) *background {
	m.t.Helper()
	return m.startCommand(m.command("qgpu", tenantArgs(memory, program...)...))
}

// startCommand runs a tenant's command beside the test.
func (m *machine) startCommand(cmd *exec.Cmd) *background {
	m.t.Helper()
	b := &background{m: m, cmd: cmd, lines: make(chan string, 1024), stderr: &bytes.Buffer{}}
	b.cmd.Stderr = b.stderr
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if b.stdin, err = b.cmd.StdinPipe(); err != nil {
		m.t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go readLines(stdout, b.lines)
	m.t.Cleanup(func() {
		if !b.ended {
			b.cmd.Process.Kill()
			b.cmd.Wait()
		}
	})
	return b
}

func readLines(r io.Reader, to chan<- string) {
	defer close(to)
	var line []byte
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		for _, c := range buf[:n] {
			if c == '\n' {
				to <- string(line)
				line = line[:0]
				continue
			}
			line = append(line, c)
		}
		if err != nil {
			return
		}
	}
}

// line waits for the tenant's next line of output.
func (b *background) line() string {
	b.m.t.Helper()
	select {
	case line, ok := <-b.lines:
		if ok {
			return line
		}
		b.cmd.Wait()
		b.ended = true
		b.m.t.Fatalf("%s ended without output: %s", b.cmd, b.stderr)
	case <-time.After(patience):
		b.m.t.Fatalf("%s said nothing for %v: %s", b.cmd, patience, b.stderr)
	}
	return ""
}

// end closes the tenant's input and waits for it.
func (b *background) end() {
	b.m.t.Helper()
	b.stdin.Close()
	b.wait()
}

func (b *background) wait() {
	timer := time.AfterFunc(patience, func() { b.cmd.Process.Kill() })
	defer timer.Stop()
	b.cmd.Wait()
	b.ended = true
}

// kill ends the tenant as kill -9 does.
func (b *background) kill() {
	b.cmd.Process.Kill()
	b.wait()
}

func decode[T any](t testing.TB, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("not the JSON expected: %v in %q", err, text)
	}
	return v
}

// cardUsed is how much of card's memory is in use, as nvidia-smi tells on the
// simulator itself, without a mediator: in MiB.
func (m *machine) cardUsed() string {
	m.t.Helper()
	return strings.TrimSpace(m.mustRun("qgpu-sim", "run", "--", "nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"))
}

// eventually waits until ok holds.
func (m *machine) eventually(what string, ok func() bool) {
	m.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			m.t.Fatalf("never came true: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
