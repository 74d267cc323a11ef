// Package simcmd is the qgpu-sim command: it starts and stops the simulated
// driver and runs programs on it.
package simcmd

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qgpu-project/qgpu/internal/simgpu"
	"github.com/qgpu-project/qgpu/internal/simgpu/host"
	"github.com/qgpu-project/qgpu/internal/userspace"
)

// options are what every command shares.
type options struct {
	dir     string
	cards   int
	models  []string
	version string
	verbose bool
}

// DefaultDir is the folder of the simulator's socket and log.
func DefaultDir() string {
	if dir := os.Getenv("QGPU_SIM_DIR"); dir != "" {
		return dir
	}
	if os.Geteuid() != 0 {
		if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
			return dir + "/qgpu-sim"
		}
		return fmt.Sprintf("%s/qgpu-sim-%d", os.TempDir(), os.Geteuid())
	}
	return "/run/qgpu-sim"
}

// New makes the command.
func New() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "qgpu-sim",
		Short: "Simulated NVIDIA cards for unmodified CUDA programs",
		Long: `qgpu-sim answers the calls that NVIDIA's kernel modules would answer, so that
the real nvidia-smi, NVML and libcuda run on a machine without a GPU. Memory is
real and data moves; kernels take simulated time and compute nothing.`,
		SilenceUsage: true,
	}
	root.PersistentFlags().StringVar(&o.dir, "dir", DefaultDir(), "folder of the simulator's socket and log (QGPU_SIM_DIR)")
	root.PersistentFlags().BoolVarP(&o.verbose, "verbose", "v", false, "log more")
	root.AddCommand(o.startCommand(), o.serveCommand(), o.stopCommand(), o.statusCommand(), o.usageCommand(), o.lostCommand("lose", "Take a card off the bus, as a broken one falls", true), o.lostCommand("recover", "Put a lost card back", false), o.runCommand(), o.attachCommand(), enterCommand())
	return root
}

func (o *options) cardFlags(c *cobra.Command) {
	c.Flags().IntVar(&o.cards, "cards", 1, "number of cards, 1 to 16")
	c.Flags().StringSliceVar(&o.models, "model", []string{"t4"}, "models of the cards, t4 or a100; with several, cards take them in turn")
	c.Flags().StringVar(&o.version, "driver-version", "", "driver version or branch: 535 or 550 (default: that of NVIDIA's user space that is here)")
}

// cardConfigs spells out the cards asked for.
func (o *options) cardConfigs() ([]simgpu.CardConfig, []string, error) {
	if o.cards < 1 || o.cards > simgpu.MaxCards {
		return nil, nil, fmt.Errorf("--cards %d: choose 1 to %d", o.cards, simgpu.MaxCards)
	}
	var configs []simgpu.CardConfig
	var models []string
	for i := range o.cards {
		model := strings.ToLower(o.models[i%len(o.models)])
		configs = append(configs, simgpu.CardConfig{Model: model})
		models = append(models, model)
	}
	return configs, models, nil
}

// newService makes a driver and its host. closing ends them.
func (o *options) newService(log *slog.Logger) (s *host.Service, closing func(), err error) {
	configs, models, err := o.cardConfigs()
	if err != nil {
		return nil, nil, err
	}
	u, err := userspace.Find(o.version)
	if err != nil {
		return nil, nil, err
	}
	tree, err := os.MkdirTemp("", "qgpu-sim-")
	if err != nil {
		return nil, nil, err
	}
	driver, err := simgpu.New(simgpu.Config{Version: u.Version, Cards: configs, Log: log})
	if err != nil {
		os.RemoveAll(tree)
		return nil, nil, err
	}
	closing = func() {
		driver.Close()
		os.RemoveAll(tree)
	}
	h, err := host.New(driver, len(configs), tree, log)
	if err != nil {
		closing()
		return nil, nil, err
	}
	return &host.Service{Host: h, Version: u.Version.String(), Models: models}, closing, nil
}

func (o *options) logger(f *os.File) *slog.Logger {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: level}))
}

// cardArgs passes the card flags on to another process.
func (o *options) cardArgs() []string {
	args := []string{"--dir", o.dir, "--cards", strconv.Itoa(o.cards), "--model", strings.Join(o.models, ",")}
	if o.version != "" {
		args = append(args, "--driver-version", o.version)
	}
	if o.verbose {
		args = append(args, "--verbose")
	}
	return args
}
