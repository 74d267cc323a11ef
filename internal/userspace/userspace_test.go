package userspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func fake(t *testing.T, branch, version string) string {
	t.Helper()
	root := t.TempDir()
	t.Setenv(Variable, root)
	dir := filepath.Join(root, branch)
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"VERSION": 0o644, "bin/nvidia-smi": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(version+"\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	dir := fake(t, "535", "535.261.03")
	for _, version := range []string{"", "535", "535.261.03"} {
		u, err := Find(version)
		if err != nil || u.Dir != dir || u.Version.String() != "535.261.03" {
			t.Errorf("Find(%q) = %+v, %v, want %s", version, u, err, dir)
		}
	}
	if _, err := Find("535.54.03"); err == nil || !strings.Contains(err.Error(), "of driver 535.261.03, not 535.54.03") {
		t.Errorf("Find of another version: %v", err)
	}
	if _, err := Find("999"); err == nil || !strings.Contains(err.Error(), "make nvidia-userspace") {
		t.Errorf("Find of a missing branch: %v", err)
	}
}

func TestEnviron(t *testing.T) {
	dir := fake(t, "535", "535.261.03")
	u, err := Find("535")
	if err != nil {
		t.Fatal(err)
	}
	env := u.Environ([]string{"HOME=/root", "PATH=/bin"})
	want := []string{"HOME=/root", "PATH=" + dir + "/bin:/bin", "LD_LIBRARY_PATH=" + dir + "/lib"}
	if !slices.Equal(env, want) {
		t.Errorf("Environ = %q, want %q", env, want)
	}
	if got, err := LookPath("nvidia-smi", env); err != nil || got != dir+"/bin/nvidia-smi" {
		t.Errorf("LookPath = %q, %v", got, err)
	}
	if got, err := LookPath("no-such-program", env); err == nil {
		t.Errorf("LookPath of nothing = %q", got)
	}
}
