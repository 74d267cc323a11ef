package cluster

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/qgpu-project/qgpu/kubernetes/image"
)

// Names of the images. The chart is told of registry and tag.
const (
	registry = "registry.local"
	imageTag = "built"

	pauseImage = registry + "/pause:" + imageTag
	// CUDAImage has a shell, its tools and the CUDA program cudaload, and nothing of
	// NVIDIA's: that comes with a share.
	CUDAImage = registry + "/cuda:" + imageTag
)

// images are all that the nodes have.
func (c *Cluster) images() []image.Image {
	of := func(name string, programs ...string) image.Image {
		files := map[string]string{}
		for _, program := range programs {
			files["/usr/local/bin/"+program] = c.program(program)
		}
		return image.Image{
			Name: fmt.Sprintf("%s/%s:%s", registry, name, imageTag), Files: files,
			Entrypoint: []string{"/usr/local/bin/" + programs[0]},
		}
	}
	return []image.Image{
		of("pause", "pause"),
		of("qgpu-agent", "qgpu-agent", "qgpu-runtime", "qgpu-sim"),
		of("qgpu-scheduler", "qgpu-scheduler"),
		c.cudaImage(),
	}
}

// libraries of glibc that NVIDIA's user space needs and no image brings by itself.
var libraries = []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}

// publicNames are those of the images in examples/, which so run as they are written.
var publicNames = []string{"nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04", "docker.io/library/busybox:1.36"}

// shellTools are busybox' commands in CUDAImage.
var shellTools = []string{"sh", "cat", "echo", "env", "false", "kill", "ls", "mkdir", "ps", "sleep", "test", "touch", "true", "wget", "grep"}

func (c *Cluster) cudaImage() image.Image {
	busybox, _ := exec.LookPath("busybox") // Start has looked for it
	files := map[string]string{"/bin/busybox": busybox, "/usr/local/bin/cudaload": c.program("cudaload")}
	links := map[string]string{}
	for _, tool := range shellTools {
		links["/bin/"+tool] = "/bin/busybox"
	}
	if loader, err := loader(c.program("cudaload")); err == nil {
		files[loader] = loader
		for _, name := range libraries {
			if path, err := library(name); err == nil {
				files[path] = path
			}
		}
	}
	return image.Image{Name: CUDAImage, Aliases: publicNames, Files: files, Links: links}
}

// loader is the dynamic loader that program names.
func loader(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, segment := range f.Progs {
		if segment.Type == elf.PT_INTERP {
			name := make([]byte, segment.Filesz)
			_, err := segment.ReadAt(name, 0)
			return strings.TrimRight(string(name), "\x00"), err
		}
	}
	return "", errors.New("it needs none")
}

// library finds one of glibc's in this machine's folders.
func library(name string) (string, error) {
	for _, dir := range []string{"/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find the library %s: %w", name, fs.ErrNotExist)
}

func (c *Cluster) imageFile(i image.Image) string {
	name := strings.NewReplacer("/", "-", ":", "-").Replace(i.Name)
	return c.sandbox.Path("images", name+".tar")
}

func (c *Cluster) buildImages() error {
	if err := os.MkdirAll(c.sandbox.Path("images"), 0o755); err != nil {
		return err
	}
	for _, i := range c.images() {
		if err := image.WriteFile(c.imageFile(i), i); err != nil {
			return err
		}
	}
	return nil
}
