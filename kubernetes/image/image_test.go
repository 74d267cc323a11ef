package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// read is the content of a tar, by name, with the headers.
func read(t *testing.T, r io.Reader) (map[string][]byte, map[string]*tar.Header) {
	t.Helper()
	contents, headers := map[string][]byte{}, map[string]*tar.Header{}
	for in := tar.NewReader(r); ; {
		header, err := in.Next()
		if err == io.EOF {
			return contents, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		if headers[header.Name] != nil {
			t.Errorf("%s is there twice", header.Name)
		}
		headers[header.Name] = header
		if contents[header.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWrite(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("runs"), 0o755); err != nil {
		t.Fatal(err)
	}
	img := Image{
		Name:       "registry.local/program:1",
		Aliases:    []string{"docker.io/library/program:latest"},
		Files:      map[string]string{"/usr/bin/program": program, "opt/other": program},
		Links:      map[string]string{"/bin/sh": "/usr/bin/program"},
		Entrypoint: []string{"/usr/bin/program"},
		User:       "65532",
	}
	var first, second bytes.Buffer
	for _, buf := range []*bytes.Buffer{&first, &second} {
		if err := Write(buf, img); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("equal files gave different images")
	}

	files, _ := read(t, &first)
	follow := func(d map[string]any) []byte {
		content := files["blobs/sha256/"+d["digest"].(string)[len("sha256:"):]]
		if content == nil || digest(content) != d["digest"] || float64(len(content)) != d["size"] {
			t.Fatalf("%v names no blob with that digest and size", d)
		}
		return content
	}
	var index, manifest, config map[string]any
	decode(t, files["index.json"], &index)
	entry := index["manifests"].([]any)[0].(map[string]any)
	if name := entry["annotations"].(map[string]any)["io.containerd.image.name"]; name != img.Name {
		t.Errorf("the image is called %v", name)
	}
	if other := index["manifests"].([]any)[1].(map[string]any); other["digest"] != entry["digest"] ||
		other["annotations"].(map[string]any)["io.containerd.image.name"] != img.Aliases[0] {
		t.Errorf("the other name is in %v", other)
	}
	decode(t, follow(entry), &manifest)
	decode(t, follow(manifest["config"].(map[string]any)), &config)
	run := config["config"].(map[string]any)
	if run["User"] != "65532" || run["Entrypoint"].([]any)[0] != "/usr/bin/program" {
		t.Errorf("it runs %v", run)
	}
	layer := follow(manifest["layers"].([]any)[0].(map[string]any))
	if diff := config["rootfs"].(map[string]any)["diff_ids"].([]any)[0]; diff != digest(layer) {
		t.Errorf("the layer's digest is said to be %v", diff)
	}
	contents, headers := read(t, bytes.NewReader(layer))
	if string(contents["usr/bin/program"]) != "runs" || headers["usr/bin/program"].Mode != 0o755 {
		t.Errorf("the program is %q, mode %o", contents["usr/bin/program"], headers["usr/bin/program"].Mode)
	}
	if h := headers["bin/sh"]; h == nil || h.Linkname != "/usr/bin/program" {
		t.Errorf("the link is %v", h)
	}
	if h := headers["tmp/"]; h == nil || h.Mode != 0o1777 {
		t.Errorf("/tmp is %v", h)
	}
}

func decode(t *testing.T, text []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

func TestWriteFileLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	err := WriteFile(filepath.Join(dir, "image.tar"), Image{Name: "a:1", Files: map[string]string{"/a": filepath.Join(dir, "missing")}})
	if err == nil {
		t.Error("an image of a missing file was built")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%s was left", left[0].Name())
	}
}
