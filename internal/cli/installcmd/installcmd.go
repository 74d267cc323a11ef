// Package installcmd is the command that puts qgpu-runtime on a node: the first
// container of the agent's pod.
package installcmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/nodeinstall"
)

// New makes the command.
func New() *cobra.Command {
	p := nodeinstall.Plan{}
	c := &cobra.Command{
		Use:   "install PROGRAM...",
		Short: "Put qgpu-runtime and its settings on this node",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p.Programs = args
			changed, err := p.Apply()
			for _, path := range changed {
				fmt.Fprintln(c.OutOrStdout(), "wrote", path)
			}
			return err
		},
	}
	flags := c.Flags()
	flags.StringVar(&p.Root, "root", "/", "where the node's file system is")
	flags.StringVar(&p.InstallDir, "dir", "/opt/qgpu", "the node's folder to install to")
	flags.StringVar(&p.Handler, "handler", "qgpu", "name of the runtime handler")
	flags.BoolVar(&p.Configure, "configure", false, "write drop-ins for containerd and CRI-O")
	flags.BoolVar(&p.SystemdCgroup, "systemd-cgroup", true, "the kubelet's cgroup driver is systemd")
	flags.StringVar(&p.Settings.StateDir, "state-dir", "", "the node's folder of tenants' state")
	flags.StringVar(&p.Settings.SimDir, "sim-dir", "", "the node's folder of the simulator")
	flags.StringVar(&p.Settings.Driver, "driver", "", "kernel or simulated")
	flags.StringVar(&p.Settings.Runc, "runc", "", "the node's runc")
	flags.StringVar(&p.Settings.Userspace, "userspace", "", "the node's folder of NVIDIA's user space, for the simulated driver")
	return c
}
