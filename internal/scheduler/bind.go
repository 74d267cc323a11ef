package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/podshare"
)

// Bind writes node and placement into the pod in one write: the API server merges a
// Binding's annotations into the pod as it sets the node. Pods without a placement are
// bound by the next plugin.
func (p *Plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	h := p.ledger.get(pod.UID)
	if h == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	note, err := h.placement.Encode()
	if err != nil {
		return fwk.AsStatus(err)
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			Annotations: map[string]string{podshare.PlacementNote: note},
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := p.bind(ctx, binding); err != nil && !p.bound(ctx, binding) {
		return fwk.AsStatus(fmt.Errorf("bind pod %s/%s to node %s: %w", pod.Namespace, pod.Name, node, err))
	}
	return nil
}

func (p *Plugin) bind(ctx context.Context, binding *corev1.Binding) error {
	cacher := p.handle.APICacher()
	if cacher == nil {
		return p.handle.ClientSet().CoreV1().Pods(binding.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	}
	done, err := cacher.BindPod(binding)
	if err != nil {
		return err
	}
	return cacher.WaitOnFinish(ctx, done)
}

// lookTimeout is how long the question after a failed binding may take.
const lookTimeout = 5 * time.Second

// bound reports whether a binding that seems to have failed was made after all: the
// answer may have been lost on its way. Its cards must not be given away then.
func (p *Plugin) bound(ctx context.Context, binding *corev1.Binding) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	pod, err := p.handle.ClientSet().CoreV1().Pods(binding.Namespace).Get(ctx, binding.Name, metav1.GetOptions{})
	return err == nil && pod.UID == binding.UID && pod.Spec.NodeName == binding.Target.Name &&
		pod.Annotations[podshare.PlacementNote] == binding.Annotations[podshare.PlacementNote]
}
