// Package runtimecmd is the qgpu-runtime command: an OCI runtime that hands on to runc,
// the mediator process of a tenant, and what is needed to start one.
package runtimecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/discovery"
	"github.com/qgpu-project/qgpu/internal/nvclient"
	"github.com/qgpu-project/qgpu/internal/ociruntime"
)

// New makes the command that obeys args: one of this program's own, if args begin with its
// name, and else runc's, whatever it is.
func New(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "qgpu-runtime",
		Short: "Run containers with a share of a card: an OCI runtime in runc's place",
		Long: `Run containers with a share of a card: an OCI runtime in runc's place.

Container engines call it as they call runc, with the same flags and commands, and
it hands them on to runc. Register it with: qgpu-runtime configure.`,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(mediatorCommand(), pacerCommand(), cardsCommand(), spawnCommand(), hookCommand(), configureCommand())
	if len(args) == 0 || isOwn(root, args[0]) {
		root.SetArgs(args)
		return root
	}
	wrapper := &cobra.Command{
		Use:                "qgpu-runtime",
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			settings, err := ociruntime.ReadSettings(settingsPath(), os.Getenv)
			if err != nil {
				return err
			}
			return ociruntime.Run(c.Context(), settings, args)
		},
	}
	wrapper.SetArgs(args)
	return wrapper
}

// isOwn reports whether word begins one of root's own command lines.
func isOwn(root *cobra.Command, word string) bool {
	return word == "help" || word == "--help" || word == "-h" ||
		slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == word })
}

func settingsPath() string {
	if path := os.Getenv("QGPU_RUNTIME_CONFIG"); path != "" {
		return path
	}
	return ociruntime.DefaultSettings
}

// hookCommand is called by runc while it creates a container.
func hookCommand() *cobra.Command {
	c := &cobra.Command{Use: "hook", Hidden: true}
	c.AddCommand(&cobra.Command{
		Use:  "adopt STATE-DIR",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return ociruntime.Adopt(c.Context(), c.InOrStdin(), args[0])
		},
	}, &cobra.Command{
		Use:  "view VIEW",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return ociruntime.Show(args[0]) },
	})
	return c
}

func cardsCommand() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use:   "cards",
		Short: "List the driver's cards as JSON",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out := json.NewEncoder(c.OutOrStdout())
			if watch {
				return discovery.Follow(untilEnd(c.Context(), c.InOrStdin()), nvclient.Kernel{}, time.Second, func(inv discovery.Inventory) error { return out.Encode(inv) })
			}
			client, inv, err := discovery.Survey(nvclient.Kernel{})
			if err != nil {
				return err
			}
			defer client.Close()
			return out.Encode(inv)
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "list them again whenever they or their health change, until the input ends")
	return c
}

// untilEnd is a context that ends with parent or with what in has to say.
func untilEnd(parent context.Context, in io.Reader) context.Context {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in) // an error is an end, too
	}()
	return ctx
}

// spawnCommand starts a process and ends at once, so that the process is nobody's
// child. It hands on the descriptors that it is told.
func spawnCommand() *cobra.Command {
	var files int
	c := &cobra.Command{
		Use:    "spawn -- PROGRAM [ARGS…]",
		Args:   cobra.MinimumNArgs(1),
		Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			// Whatever else the launcher inherited is not the process's to keep open.
			if err := unix.CloseRange(uint(firstFile+files), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
				return fmt.Errorf("close inherited files: %w", err)
			}
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Stderr = os.Stderr
			cmd.Dir = "/"
			for i := range files {
				cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(firstFile+i), "inherited"))
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				return fmt.Errorf("start %s: %w", args[0], err)
			}
			return cmd.Process.Release()
		},
	}
	c.Flags().IntVar(&files, "files", 0, "number of descriptors, from 3 on, that the program inherits")
	return c
}

// firstFile is the first descriptor after the standard ones.
const firstFile = 3
