package kubecmd

import (
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/qgpu-project/qgpu/internal/clusterview"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/replay"
	"github.com/qgpu-project/qgpu/internal/share"
)

func (o *options) exportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export-trace FOLDER",
		Short: "Write the cluster's cards and pods as a trace for qgpu-placement-sim",
		Long: `Writes nodes.csv and pods.csv into FOLDER: the cluster's cards, and the pods with
shares that the API server still has, with the card models that their nodeSelector and
required node affinity leave them. Names of pods are left out of the trace.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			v, err := o.view(c.Context())
			if err != nil {
				return err
			}
			t := trace(v)
			if err := replay.Write(args[0], t); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "wrote %d nodes and %d shares to %s\n", len(t.Nodes), len(t.Pods), args[0])
			return err
		},
	}
}

// trace is the cluster as a trace. A trace knows one model a node, the first card's; a
// pod's containers are lines of their own. Pods that wait and that no node would do for
// are left out: in a trace they would take cards that they cannot have.
func trace(v *clusterview.View) *replay.Trace {
	t := &replay.Trace{}
	for _, n := range v.Nodes {
		if len(n.Cards) == 0 {
			continue
		}
		t.Nodes = append(t.Nodes, replay.Node{
			Name: n.Name, Model: n.Cards[0].Model, CPU: n.CPU, HostMemoryMiB: n.Object.Status.Allocatable.Memory().Value() >> 20,
			Cards: len(n.Cards), CardMemoryMiB: int64(n.Cards[0].Memory / share.MiB),
		})
	}
	begin := time.Time{}
	for _, p := range v.Pods {
		if created := p.Object.CreationTimestamp.Time; begin.IsZero() || created.Before(begin) {
			begin = created
		}
	}
	var known podshare.KnownModels
	for i, p := range v.Pods {
		models, some := known.Of(p.Object, 0, firstCards(v))
		if p.Request == nil || !some && p.Placement == nil {
			continue
		}
		for j := range p.Request.Containers {
			line := traceLine(p.Object, &p.Request.Containers[j], begin)
			line.Name, line.Models = fmt.Sprintf("pod-%d-%d", i, j), models
			if j > 0 { // the host's share is the pod's, not each container's
				line.CPU, line.HostMemoryMiB = 0, 0
			}
			t.Pods = append(t.Pods, line)
		}
	}
	return t
}

// firstCards is the nodes with as much of their cards as a trace knows.
func firstCards(v *clusterview.View) iter.Seq2[*corev1.Node, []placement.Card] {
	return func(yield func(*corev1.Node, []placement.Card) bool) {
		for i := range v.Nodes {
			n := &v.Nodes[i]
			if len(n.Cards) > 0 && !yield(n.Object, n.Cards[:1]) {
				return
			}
		}
	}
}

func traceLine(pod *corev1.Pod, c *placement.Container, begin time.Time) replay.Pod {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	part := c.Share.PerCard()
	line := replay.Pod{
		CPU: requests.Cpu().MilliValue(), HostMemoryMiB: requests.Memory().Value() >> 20,
		Cards: c.Share.Cards(), CoreMilli: int64(part.Core) * 10, CardMemoryMiB: int64(part.Memory / share.MiB),
		QoS: c.Share.Class.String(), Phase: string(pod.Status.Phase),
		Created: since(begin, pod.CreationTimestamp.Time),
	}
	if pod.DeletionTimestamp != nil {
		line.Deleted = since(begin, pod.DeletionTimestamp.Time)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionTrue {
			line.Scheduled = since(begin, condition.LastTransitionTime.Time)
		}
	}
	return line
}

func since(begin, t time.Time) int64 { return int64(t.Sub(begin) / time.Second) }
