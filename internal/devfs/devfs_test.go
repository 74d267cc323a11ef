package devfs

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a mount namespace")
	}
}

func TestView(t *testing.T) {
	needRoot(t)
	before, err := os.ReadFile("/proc/devices")
	if err != nil {
		t.Fatal(err)
	}
	hidden := t.TempDir()
	if err := os.WriteFile(hidden+"/secret", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	v := View{
		Nodes: []Node{{"/dev/nvidiactl", 195, 255}, {"/dev/nvidia0", 195, 0}},
		Files: map[string]string{
			"/proc/driver/nvidia/version":                       "NVRM version\n",
			"/proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: test\n",
			"/proc/devices": string(before) + "195 nvidia\n",
		},
		Hide:  []string{"/dev/zero", "/dev/rand*"},
		Empty: []string{hidden},

		Scratch: t.TempDir(),
	}
	err = Do(v, func() error {
		var st unix.Stat_t
		if err := unix.Stat("/dev/nvidiactl", &st); err != nil || st.Mode != unix.S_IFCHR|0o666 || st.Rdev != unix.Mkdev(195, 255) {
			t.Errorf("stat /dev/nvidiactl: %v, mode %o, rdev %x", err, st.Mode, st.Rdev)
		}
		if _, err := os.OpenFile("/dev/nvidiactl", os.O_RDWR, 0); !errors.Is(err, unix.EACCES) {
			t.Errorf("open /dev/nvidiactl: %v, want EACCES", err)
		}
		for path, want := range v.Files {
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("read %s: %q, %v", path, got, err)
			}
		}
		if f, err := os.OpenFile("/dev/null", os.O_RDWR, 0); err != nil {
			t.Errorf("open /dev/null: %v", err)
		} else {
			f.Close()
		}
		for _, path := range []string{"/dev/zero", "/dev/random", hidden + "/secret"} {
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("stat %s: %v, want that it does not exist", path, err)
			}
		}
		if _, err := os.ReadDir("/dev/pts"); err != nil {
			t.Errorf("list /dev/pts: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile("/proc/devices"); string(after) != string(before) {
		t.Error("the view changed /proc/devices outside")
	}
	if _, err := os.Stat("/dev/zero"); err != nil {
		t.Errorf("outside the view: %v", err)
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo") // the process may have kept the other thread
	if err != nil || strings.Contains(string(mounts), v.Scratch) {
		t.Errorf("mounts were left behind (%v)", err)
	}
	if left, err := os.ReadDir(v.Scratch); err != nil || len(left) > 0 {
		t.Errorf("left behind in the scratch folder: %v (%v)", left, err)
	}
}
