// Package runtimecmd is the qgpu-runtime command: the mediator process of a
// tenant, and what is needed to start one.
package runtimecmd

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/nvclient"
)

// New makes the command.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "qgpu-runtime",
		Short: "Mediate a tenant's calls on NVIDIA device files",
	}
	root.AddCommand(mediatorCommand(), pacerCommand(), cardsCommand(), spawnCommand())
	return root
}

func cardsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cards",
		Short: "List the driver's cards as JSON",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cards, version, err := nvclient.List(nvclient.Kernel{})
			if err != nil {
				return err
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(launch.Inventory{Version: version.String(), Cards: cards})
		},
	}
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
