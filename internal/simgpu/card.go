package simgpu

import (
	"encoding/hex"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/qgpu-project/qgpu/internal/simgpu/engine"
)

// CardConfig says what a simulated card is.
type CardConfig struct {
	Model string // key of a Model: "t4" or "a100"
	// Name makes the card's UUID: the same name gives the same UUID. Empty means
	// "card" and the card's index.
	Name string
}

// card is a simulated card. Its fields are immutable but for framebuffer and those after engine, which are under Driver.mu.
type card struct {
	model  *Model
	minor  int    // N of /dev/nvidiaN; also RM's device instance
	gpuID  uint32 // RM's id
	bus    uint8  // PCI bus
	uuid   [16]byte
	engine *engine.Engine
	fb     framebuffer

	nextOffset uint64 // where place goes on
	lost       bool   // fell off the bus
}

// uuidSpace is the name space from which cards' names make UUIDs.
var uuidSpace = uuid.MustParse("6a0bf0c2-5d55-5f44-9d3e-1c2f6f6d7155")

func newCard(cfg CardConfig, minor int, log *slog.Logger) (*card, error) {
	model, known := Models()[cfg.Model]
	if !known {
		return nil, fmt.Errorf("there is no card model %q: the models are t4 and a100", cfg.Model)
	}
	name := cfg.Name
	if name == "" {
		name = fmt.Sprintf("card%d", minor)
	}
	bus := uint8(minor + 1)
	return &card{
		model: model,
		minor: minor,
		gpuID: uint32(bus) << 8,
		bus:   bus,
		uuid:  uuid.NewSHA1(uuidSpace, []byte(model.Key+"/"+name)),
		fb:    framebuffer{total: model.Memory, reserved: model.Reserved},
		engine: engine.New(engine.Config{
			Chip: model.Chip,
			Log:  log.With("card", minor),
			Seed: uint64(minor) + 1,
			// As measured on an 8-GPU node: 27 % of restarts are refused.
			RestartFailures: 270,
		}),
	}, nil
}

// uuidString is the UUID as NVIDIA writes it.
func (c *card) uuidString() string {
	h := hex.EncodeToString(c.uuid[:])
	return "GPU-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// pciAddress is the card's PCI address as in /proc/driver/nvidia/gpus.
func (c *card) pciAddress() string { return fmt.Sprintf("0000:%02x:00.0", c.bus) }

// Physical addresses of the card's apertures.
func (c *card) registers() (base, size uint64) { return 0xf0000000 + uint64(c.minor)<<24, 16 * mib }
func (c *card) bar1() (base, size uint64) {
	return 1<<40 + uint64(c.minor)<<37, c.model.BAR1
}
