package simgpu

import (
	"context"
	"log/slog"
)

// trace logs an answered call at debug level.
func (d *Driver) trace(what, name string, number uint32, s status, attrs ...any) {
	if d.log.Enabled(context.Background(), slog.LevelDebug) {
		attrs = append([]any{"name", name, "number", hexNumber(number), "status", s}, attrs...)
		d.log.Debug(what, attrs...)
	}
}
