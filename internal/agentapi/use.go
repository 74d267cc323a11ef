package agentapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/qgpu-project/qgpu/internal/share"
)

// UsePath is where an agent tells, on its port, what its node's tenants use: GET; 200 and
// a Use.
const UsePath = "/v1/use"

// Use is what the tenants of a node use of its cards at one moment.
type Use struct {
	Cards      []CardUse      `json:"cards"`      // that have tenants, pods' or not
	Containers []ContainerUse `json:"containers"` // of pods
}

// CardUse is the use of one card.
type CardUse struct {
	UUID string       `json:"uuid"`
	Used share.Memory `json:"memoryUsedBytes"` // by tenants
	// Busy is the part of the last second in which the card computed, for anybody, in
	// percent; nil: the driver does not tell.
	Busy *float64 `json:"busyPercent,omitempty"`
}

// ContainerUse is what one container uses of its slices.
type ContainerUse struct {
	Container
	Slices []SliceUse `json:"slices"`
	Error  string     `json:"error,omitempty"` // why Slices lacks
}

// SliceUse is the use of a slice of one card.
type SliceUse struct {
	UUID  string       `json:"uuid"`
	Used  share.Memory `json:"memoryUsedBytes"`
	Quota share.Memory `json:"memoryQuotaBytes"`
	// Busy is the container's own part of CardUse.Busy; nil where that does not follow:
	// the driver measures cards.
	Busy *float64 `json:"busyPercent,omitempty"`
}

// User tells what a node's tenants use.
type User interface {
	Use(ctx context.Context) (Use, error)
}

// UseHandler is the agent's HTTP interface for who may reach its port. It reads, and tells
// nothing that is secret in a cluster.
func UseHandler(u User, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+UsePath, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		use, err := u.Use(ctx)
		if err != nil {
			log.Warn("what tenants use cannot be told", "err", err)
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		answer(w, http.StatusOK, use, log)
	})
	return mux
}

// ParseUse reads an agent's answer.
func ParseUse(text []byte) (Use, error) {
	var use Use
	if err := json.Unmarshal(text, &use); err != nil {
		return use, fmt.Errorf("the agent's answer is damaged: %w", err)
	}
	return use, nil
}
