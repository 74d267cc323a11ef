package ociruntime

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args string
		want commandLine
	}{
		{"", commandLine{bundle: "."}},
		{"--version", commandLine{bundle: "."}},
		// containerd's shim (go-runc)
		{"--root /run/containerd/runc/k8s.io --log /b/log.json --log-format json --systemd-cgroup create --bundle /b --pid-file /b/init.pid c1",
			commandLine{command: "create", id: "c1", log: "/b/log.json", logFormat: "json", bundle: "/b"}},
		{"--root /r --log /b/log.json --log-format json exec --process /tmp/p --console-socket /s --detach --pid-file /x c1",
			commandLine{command: "exec", id: "c1", log: "/b/log.json", logFormat: "json", bundle: ".", process: "/tmp/p"}},
		{"--root /r --log /b/log.json --log-format json delete --force c1", commandLine{command: "delete", id: "c1", log: "/b/log.json", logFormat: "json", bundle: "."}},
		// conmon
		{"--root=/run/qgpu-runc create --bundle /b --pid-file /p --no-new-keyring c1", commandLine{command: "create", id: "c1", bundle: "/b"}},
		// people
		{"run -b /b -d c1", commandLine{command: "run", id: "c1", bundle: "/b"}},
		{"run --bundle=/b --preserve-fds 2 c1", commandLine{command: "run", id: "c1", bundle: "/b"}},
		{"create c1", commandLine{command: "create", id: "c1", bundle: "."}},
		{"exec -t -u 1:1 -e A=B --cap CAP_SYS_ADMIN -c=CAP_KILL c1 ls -p /etc", commandLine{command: "exec", id: "c1", bundle: ".", caps: []string{"CAP_SYS_ADMIN", "CAP_KILL"}}},
		{"exec -- c1 ls", commandLine{command: "exec", id: "c1", bundle: "."}},
		{"kill c1 KILL", commandLine{command: "kill", bundle: "."}},
		{"--debug state c1", commandLine{command: "state", bundle: "."}},
		// what runc refuses
		{"create --bundle", commandLine{command: "create", bundle: "."}},
		{"--root", commandLine{bundle: "."}},
	} {
		got := parse(strings.Fields(tt.args))
		got.args = nil
		if got.command != tt.want.command || got.id != tt.want.id || got.log != tt.want.log || got.logFormat != tt.want.logFormat ||
			got.bundle != tt.want.bundle || got.process != tt.want.process || !slices.Equal(got.caps, tt.want.caps) {
			t.Errorf("%s\n is read as %+v\n want       %+v", tt.args, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("--root /r create --bundle /b c1")
	f.Add("exec -p x -- c1")
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		c := parse(args)
		if c.id != "" && !slices.Contains(args, c.id) {
			t.Errorf("%q names container %q, which is no word of it", line, c.id)
		}
		if !slices.Equal(c.args, args) {
			t.Error("the command line was changed")
		}
	})
}

func TestReport(t *testing.T) {
	at := time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)
	for format, want := range map[string]string{
		"json": `{"level":"error","msg":"no \"room\"","time":"2026-11-30T20:00:00Z"}` + "\n",
		"text": `time="2026-11-30T20:00:00Z" level=error msg="no \"room\""` + "\n",
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte("earlier\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := commandLine{log: path, logFormat: format}
		if err := c.report(errText(`no "room"`), at); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != "earlier\n"+want {
			t.Errorf("%s: %s", format, got)
		}
	}
	if err := (&commandLine{}).report(errText("x"), at); err != nil {
		t.Errorf("without a log: %v", err)
	}
}

type errText string

func (e errText) Error() string { return string(e) }

func TestSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runtime.json")
	env := map[string]string{}
	read := func(text string) (Settings, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadSettings(path, func(name string) string { return env[name] })
	}
	standard := Settings{StateDir: "/run/qgpu", SimDir: "/run/qgpu-sim", Driver: "auto"}
	if s, err := ReadSettings(path, func(string) string { return "" }); err != nil || s != standard {
		t.Errorf("without a file: %+v, %v", s, err)
	}
	if s, err := read(`{"stateDir": "/s", "driver": "simulated", "runc": "/usr/bin/crun"}`); err != nil || s != (Settings{StateDir: "/s", SimDir: "/run/qgpu-sim", Driver: "simulated", Runc: "/usr/bin/crun"}) {
		t.Errorf("with a file: %+v, %v", s, err)
	}
	env["QGPU_STATE_DIR"] = "/e"
	if s, err := read(`{"stateDir": "/s"}`); err != nil || s.StateDir != "/e" {
		t.Errorf("with a variable: %+v, %v", s, err)
	}
	if _, err := read(`{"statedirs": "/s"}`); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("with a setting that is none: %v", err)
	}
}

func TestFindRunc(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (Settings{Runc: self}).runc(); err == nil || !strings.Contains(err.Error(), "qgpu-runtime itself") {
		t.Errorf("this program for runc: %v", err)
	}
	if _, err := (Settings{Runc: "/no/such/runc"}).runc(); err == nil || !strings.Contains(err.Error(), "install runc") {
		t.Errorf("no runc: %v", err)
	}
}
