package engineconf

import (
	"strings"
	"testing"
)

func TestRegister(t *testing.T) {
	for _, tt := range []struct {
		name    string
		engine  Engine
		current string
		want    []string // parts of the file afterwards
		err     string
	}{
		{"containerd, a new drop-in", Containerd, "", []string{
			"version = 3", "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.qgpu]", "runtime_type = 'io.containerd.runc.v2'",
			"BinaryName = '/opt/qgpu/bin/qgpu-runtime'"}, ""},
		{"containerd 1.7", Containerd, "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\ndefault_runtime_name = 'runc'\n", []string{
			"version = 2", "default_runtime_name = 'runc'", "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.qgpu]"}, ""},
		{"containerd, what the user chose", Containerd, "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.qgpu.options]\nSystemdCgroup = true\nBinaryName = '/old'\n", []string{
			"SystemdCgroup = true", "BinaryName = '/opt/qgpu/bin/qgpu-runtime'"}, ""},
		{"containerd of another age", Containerd, "version = 9\n", nil, "version 9 of containerd's configuration is unknown"},
		{"containerd, damaged", Containerd, "version = \n", nil, "this is no TOML"},
		{"containerd, no table", Containerd, "version = 3\nplugins = 'none'\n", nil, `"plugins" is no table`},
		{"CRI-O", CRIO, "", []string{"[crio.runtime.runtimes.qgpu]", "runtime_path = '/opt/qgpu/bin/qgpu-runtime'", "runtime_type = 'oci'", "runtime_root = '/run/qgpu-runc'"}, ""},
		{"Docker, no file", Docker, "", []string{`"qgpu": {`, `"path": "/opt/qgpu/bin/qgpu-runtime"`}, ""},
		{"Docker, what is there", Docker, `{"log-driver": "json-file", "max-concurrent-downloads": 12345678901, "runtimes": {"crun": {"path": "/usr/bin/crun"}, "qgpu": {"runtimeArgs": ["--debug"]}}}`, []string{
			`"log-driver": "json-file"`, `"max-concurrent-downloads": 12345678901`, `"/usr/bin/crun"`, `"--debug"`, `"path": "/opt/qgpu/bin/qgpu-runtime"`}, ""},
		{"Docker, damaged", Docker, "{", nil, "this is no JSON object"},
		{"Docker, two objects", Docker, "{}{}", nil, "something after"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const path = "/opt/qgpu/bin/qgpu-runtime"
			got, err := tt.engine.Register([]byte(tt.current), "qgpu", path)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range tt.want {
				if !strings.Contains(string(got), part) {
					t.Errorf("%s is not in\n%s", part, got)
				}
			}
			again, err := tt.engine.Register(got, "qgpu", path)
			if err != nil || string(again) != string(got) {
				t.Errorf("registering again (%v) gives\n%s\nafter\n%s", err, again, got)
			}
		})
	}
}

func FuzzRegister(f *testing.F) {
	for _, text := range []string{"", "{}", "null", "version = 2\n", "version = 3\n[plugins]\n", `{"runtimes": null}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, e := range []Engine{Containerd, CRIO, Docker} {
			got, err := e.Register(text, "qgpu", "/bin/qgpu-runtime")
			if err != nil {
				continue
			}
			again, err := e.Register(got, "qgpu", "/bin/qgpu-runtime")
			if err != nil || string(again) != string(got) {
				t.Errorf("%s: registering again (%v) gives\n%q\nafter\n%q", e.Name, err, again, got)
			}
		}
	})
}
