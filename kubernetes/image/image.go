// Package image builds container images from local files: an OCI image layout in one
// tar, as containerd imports it. There is no registry, no daemon and no base image.
// It knows nothing of what the files are.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
)

// Image is what to build.
type Image struct {
	Name       string            // reference with a tag, such as registry.local/pause:1
	Aliases    []string          // further names
	Files      map[string]string // path in the image: path on this machine
	Links      map[string]string // path in the image: target of the symbolic link
	Entrypoint []string
	User       string // name or number; empty: root
}

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
	searchPath   = "PATH=/usr/local/bin:/usr/bin:/bin:/sbin"
)

// folders that programs expect and that no file may bring.
var folders = []string{"dev", "etc", "proc", "sys", "tmp"}

// Write writes image as a tar of an OCI layout. Equal files give equal bytes.
func Write(w io.Writer, image Image) error {
	layer, err := image.layer()
	if err != nil {
		return fmt.Errorf("build image %s: %w", image.Name, err)
	}
	config, err := json.Marshal(image.config(digest(layer)))
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": descriptor(configType, config),
		"layers": []any{descriptor(layerType, layer)},
	})
	if err != nil {
		return err
	}
	var entries []any
	for _, name := range append([]string{image.Name}, image.Aliases...) {
		entry := descriptor(manifestType, manifest)
		entry["platform"] = map[string]string{"architecture": "amd64", "os": "linux"}
		entry["annotations"] = map[string]string{"io.containerd.image.name": name}
		entries = append(entries, entry)
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": entries})
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, file := range []struct {
		name    string
		content []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
		{blob(config), config}, {blob(manifest), manifest}, {blob(layer), layer},
	} {
		if err := put(out, file.name, 0o644, file.content); err != nil {
			return err
		}
	}
	return out.Close()
}

// WriteFile is Write to a file, which is there whole or not at all.
func WriteFile(name string, image Image) error {
	f, err := renameio.NewPendingFile(name, renameio.WithTempDir(path.Dir(name)), renameio.WithStaticPermissions(0o644))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if err := Write(f, image); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// config is the OCI image configuration. diff is the digest of the only layer.
func (i Image) config(diff string) map[string]any {
	run := map[string]any{"Env": []string{searchPath}}
	if len(i.Entrypoint) > 0 {
		run["Entrypoint"] = i.Entrypoint
	}
	if i.User != "" {
		run["User"] = i.User
	}
	return map[string]any{
		"architecture": "amd64", "os": "linux",
		"created": epoch.Format(time.RFC3339),
		"config":  run,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{diff}},
	}
}

// layer is the image's only layer, an uncompressed tar.
func (i Image) layer() ([]byte, error) {
	var buf bytes.Buffer
	l := layer{tar: tar.NewWriter(&buf), made: map[string]bool{}}
	for _, folder := range folders {
		if err := l.folder(folder); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		if err := l.file(clean(name), i.Files[name]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Links)) {
		if err := l.link(clean(name), i.Links[name]); err != nil {
			return nil, err
		}
	}
	if err := l.tar.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// layer is a tar under construction, with the folders that it has already.
type layer struct {
	tar  *tar.Writer
	made map[string]bool
}

func (l layer) folder(name string) error {
	if name == "." || l.made[name] {
		return nil
	}
	if err := l.folder(path.Dir(name)); err != nil {
		return err
	}
	l.made[name] = true
	mode := int64(0o755)
	if name == "tmp" {
		mode = 0o1777
	}
	return l.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, ModTime: epoch})
}

func (l layer) file(name, source string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if err := l.folder(path.Dir(name)); err != nil {
		return err
	}
	return put(l.tar, name, info.Mode()&fs.ModePerm, content)
}

func (l layer) link(name, target string) error {
	if err := l.folder(path.Dir(name)); err != nil {
		return err
	}
	return l.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: epoch})
}

// epoch is the time of everything in an image, so that equal files give equal images.
var epoch = time.Unix(0, 0).UTC()

func put(w *tar.Writer, name string, mode fs.FileMode, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: int64(len(content)), ModTime: epoch}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

func blob(content []byte) string {
	return "blobs/sha256/" + strings.TrimPrefix(digest(content), "sha256:")
}

func descriptor(mediaType string, content []byte) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": digest(content), "size": len(content)}
}
