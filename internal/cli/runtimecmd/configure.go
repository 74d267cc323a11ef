package runtimecmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/ociruntime/engineconf"
)

func configureCommand() *cobra.Command {
	var name, path string
	var write bool
	engines := []struct {
		flag   string
		engine engineconf.Engine
		file   string
	}{
		{flag: "containerd", engine: engineconf.Containerd},
		{flag: "crio", engine: engineconf.CRIO},
		{flag: "docker", engine: engineconf.Docker},
	}
	c := &cobra.Command{
		Use:   "configure (--containerd | --crio | --docker)[=FILE]",
		Short: "Register this program with a container engine",
		Long: `Register this program with a container engine, in a configuration file of its.

The file is printed as it is to be, or written with --write. What it says already
stays. The engine must be told to read it again; containerd reads a drop-in only if
its own file has imports = ["/etc/containerd/conf.d/*.toml"].`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if path == "" {
				var err error
				if path, err = os.Executable(); err != nil {
					return err
				}
			}
			done := false
			for i := range engines {
				if e := &engines[i]; c.Flags().Changed(e.flag) {
					if err := register(c.OutOrStdout(), e.engine, e.file, name, path, write); err != nil {
						return fmt.Errorf("%s: %w", e.file, err)
					}
					done = true
				}
			}
			if !done {
				return errors.New("name a container engine: --containerd, --crio or --docker")
			}
			return nil
		},
	}
	for i := range engines {
		e := &engines[i]
		c.Flags().StringVar(&e.file, e.flag, e.engine.File, "configuration file for "+e.engine.Name)
		c.Flags().Lookup(e.flag).NoOptDefVal = e.engine.File
	}
	c.Flags().StringVar(&name, "name", "qgpu", "name of the runtime (in Kubernetes, a RuntimeClass's handler)")
	c.Flags().StringVar(&path, "path", "", "this program's path, where the engine finds it (default: where it is)")
	c.Flags().BoolVar(&write, "write", false, "write the file")
	return c
}

// register prints or writes file with runtime name registered.
func register(out io.Writer, e engineconf.Engine, file, name, path string, write bool) error {
	current, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := e.Register(current, name, path)
	if err != nil {
		return err
	}
	if !write {
		_, err := out.Write(text)
		return err
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(file, text, 0o644, renameio.WithTempDir(dir))
}
