package main

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"

	"github.com/qgpu-project/qgpu/internal/replay"
)

// The scheduler, as a whole, places pods where the simulator does: what the simulator says
// of a policy holds for clusters.
func TestSchedulerAgreesWithSimulator(t *testing.T) {
	program, err := filepath.Abs("../../bin/qgpu-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v; run make cluster-programs", err)
	}
	trace, err := replay.Open("../../internal/replay/testdata", "")
	if err != nil {
		t.Fatal(err)
	}
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	s, err := newSite(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler), "../../deploy/helm/qgpu/templates/crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	// Not fgd: the simulator's is told the whole trace, as the published one.
	got, err := s.agree(t.Context(), program, "frag", playable(trace, 300))
	t.Log(got)
	if err != nil {
		t.Fatal(err)
	}
	if got.cards != got.pods || got.placed == 0 || got.placed == got.pods {
		t.Error("they differ, or the trace does not fill the cluster")
	}
}
