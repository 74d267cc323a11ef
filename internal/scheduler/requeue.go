package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/podshare"
)

// EventsToRegister lists what may make room for a pod that found none. The scheduler
// tells of pods that have ended as of deleted ones. Changes of inventories are not its
// events: the plugin wakes pods itself (see waker).
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPodLeft},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeAllocatable}, QueueingHintFn: p.afterNodeChanged},
	}, nil
}

// afterPodLeft wakes pods when one has gone that asked for a share.
func (p *Plugin) afterPodLeft(_ klog.Logger, _ *corev1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	left, ok := oldObj.(*corev1.Pod)
	if !ok {
		return fwk.Queue, nil // better one try too many than a pod that waits beside room
	}
	if _, placed := left.Annotations[podshare.PlacementNote]; placed || p.reader.Asks(left) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// afterNodeChanged wakes pods when a node comes, its labels on shares change
// or its cards are advertised.
func (p *Plugin) afterNodeChanged(_ klog.Logger, _ *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	now, ok := newObj.(*corev1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	if now.Labels[podshare.EnableLabel] != "enable" {
		return fwk.QueueSkip, nil
	}
	before, ok := oldObj.(*corev1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	if amount := before.Status.Allocatable[podshare.Core]; amount.IsZero() {
		return fwk.Queue, nil // what is advertised now, if it is, was not before
	}
	for _, label := range []string{podshare.EnableLabel, podshare.PolicyLabel} {
		if before.Labels[label] != now.Labels[label] {
			return fwk.Queue, nil
		}
	}
	return fwk.QueueSkip, nil
}
