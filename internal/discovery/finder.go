package discovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/qgpu-project/qgpu/internal/simgpu/host"
)

// Names of drivers, as on command lines.
const (
	Auto      = "auto" // the kernel's if it is loaded, else a simulated one that runs
	Kernel    = "kernel"
	Simulated = "simulated"
)

// Finder follows the cards of a machine's driver, whichever it has.
type Finder struct {
	Driver string // Auto, Kernel or Simulated
	SimDir string // folder of the simulator
	Bin    string // folder of qgpu-runtime and qgpu-sim
}

// Watch reports the cards of the driver, by its name, as [Source.Watch] does. A simulator
// that does not run is not started.
func (f Finder) Watch(ctx context.Context, report func(driver string, inv Inventory)) error {
	driver, err := f.find()
	if err != nil {
		return err
	}
	source := Source{Runtime: filepath.Join(f.Bin, "qgpu-runtime")}
	if driver == Simulated {
		source.Simulator, source.SimDir = filepath.Join(f.Bin, "qgpu-sim"), f.SimDir
	}
	return source.Watch(ctx, func(inv Inventory) { report(driver, inv) })
}

func (f Finder) find() (string, error) {
	switch f.Driver {
	case Kernel, Simulated:
		return f.Driver, nil
	case Auto:
		if _, err := os.Stat("/dev/nvidiactl"); err == nil {
			return Kernel, nil
		}
		if _, err := (host.Client{Dir: f.SimDir}).Info(); err == nil {
			return Simulated, nil
		}
		return "", errors.New("this machine has neither an NVIDIA driver (/dev/nvidiactl is missing) nor a running simulator")
	}
	return "", fmt.Errorf("driver %q is unknown: choose auto, kernel or simulated", f.Driver)
}
