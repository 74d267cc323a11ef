package host

import (
	"log/slog"
	"sync/atomic"

	"github.com/qgpu-project/qgpu/internal/privilege"
	"github.com/qgpu-project/qgpu/internal/seccomp"
)

// prompt handles calls with the caller's claim to a processor, as a driver does that runs in
// the caller's own thread: a real-time thread is answered by one. Nobody gains by that who
// could not burn real-time processor time itself.
type prompt struct {
	*handler
	refused *atomic.Bool // it was not allowed once: not tried again
}

func newPrompt(h *handler) prompt { return prompt{h, new(atomic.Bool)} }

// Handle implements seccomp.Handler. The thread is a worker's own and ends with it.
func (p prompt) Handle(n *seccomp.Notification) seccomp.Answer {
	p.follow(n.Thread())
	return p.handler.Handle(n)
}

func (p prompt) follow(thread int) {
	if p.refused.Load() {
		return
	}
	its, err1 := privilege.Realtime(thread)
	own, err2 := privilege.Realtime(0)
	if err1 != nil || err2 != nil || its == own {
		return
	}
	if err := privilege.SetRealtime(its, false); err != nil && !p.refused.Swap(true) {
		p.log.Warn("real-time callers are answered like others", slog.Any("error", err))
	}
}
