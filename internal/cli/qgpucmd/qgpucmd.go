// Package qgpucmd is the qgpu command: it runs programs on shares of cards and
// shows who has what.
package qgpucmd

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/cli/kubecmd"
	"github.com/qgpu-project/qgpu/internal/cli/simcmd"
	"github.com/qgpu-project/qgpu/internal/launch"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// options are what every command shares.
type options struct {
	stateDir string
	simDir   string
	driver   string
}

// New makes the command.
func New() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "qgpu",
		Short: "Shares of GPU cards for unmodified programs",
		Long: `qgpu runs programs on shares of NVIDIA cards: so much memory, such a part of
the compute, enforced at the driver's own system calls.`,
	}
	root.PersistentFlags().StringVar(&o.stateDir, "state-dir", defaultStateDir(), "folder of the tenants' state (QGPU_STATE_DIR)")
	root.PersistentFlags().StringVar(&o.simDir, "sim-dir", simcmd.DefaultDir(), "folder of the simulator (QGPU_SIM_DIR)")
	root.AddCommand(o.runCommand(), o.setCommand(), o.psCommand(), o.topCommand(), o.inspectCommand(), o.doctorCommand(), o.demoCommand(),
		kubecmd.New("kube"))
	return root
}

func defaultStateDir() string {
	if dir := os.Getenv("QGPU_STATE_DIR"); dir != "" {
		return dir
	}
	return tenant.DefaultDir
}

func (o *options) driverFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.driver, "driver", launch.DriverAuto, "auto, kernel or simulated")
}
