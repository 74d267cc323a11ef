package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

// drift remembers what was reported, so that each thing is reported once. It is the
// audit's alone.
type drift struct {
	suspects map[string]bool   // tenants whose pod was not there when they were last looked at
	reported map[string]string // by tenant
}

// auditTenants compares what runs with what was placed, reports what differs, and
// forgets promises to pods that are gone. It ends nobody: a tenant's mediator holds it to
// what it was granted whoever has forgotten its pod.
func (a *Agent) auditTenants(ctx context.Context) error {
	if !a.pods.HasSynced() || !a.node.HasSynced() {
		return nil
	}
	tenants, err := a.registry.List()
	if err != nil {
		return fmt.Errorf("read the tenants: %w", err)
	}
	kubelet, kubeletSays := a.kubeletPods(ctx)
	pods := map[string]*corev1.Pod{} // by uid
	named := map[string]int{}
	for _, object := range a.pods.GetStore().List() {
		pod := object.(*corev1.Pod)
		pods[string(pod.UID)] = pod
		named[pod.Namespace+"/"+pod.Name]++
	}
	// inKubelet: the kubelet has more pods of the name than the API server, so that it
	// still has one that is gone from there. A kubelet that cannot be asked may have it.
	inKubelet := func(name string) bool { return !kubeletSays || kubelet[name] > named[name] }
	soon := a.forgetPromises(pods, inKubelet)

	suspects, living := map[string]bool{}, map[string]string{}
	for _, t := range tenants {
		if t.Owner == nil {
			continue
		}
		name := t.Owner.Namespace + "/" + t.Owner.Pod
		difference := ""
		if pod := pods[t.Owner.PodUID]; pod != nil {
			difference = differs(t, pod)
		} else if inKubelet(name) || !a.drift.suspects[t.ID] {
			suspects[t.ID] = true // it may be about to end
		} else {
			suspects[t.ID] = true
			difference = fmt.Sprintf("its pod %s with uid %s is gone from the API server and the kubelet", name, t.Owner.PodUID)
		}
		living[t.ID] = difference
		if difference != "" && a.drift.reported[t.ID] != difference {
			a.report(t, pods[t.Owner.PodUID], difference)
		}
	}
	a.drift = drift{suspects: suspects, reported: living}
	if soon || len(suspects) > 0 {
		time.AfterFunc(lookAgain, a.audit.pull)
	}
	return nil
}

// lookAgain is how soon the audit looks again at what is about to end.
const lookAgain = time.Second

// kubeletPods are the pods that the kubelet has by namespace/name, if it says so.
func (a *Agent) kubeletPods(ctx context.Context) (map[string]int, bool) {
	if a.Kubelet == nil {
		return nil, true
	}
	pods, err := a.Kubelet.Pods(ctx)
	if err != nil {
		a.Log.Warn("the kubelet does not say which pods it has", "err", err)
		return nil, false
	}
	return pods, true
}

// forgetPromises drops promises to pods that are gone, and reports whether there are some
// to pods that the kubelet alone has.
func (a *Agent) forgetPromises(pods map[string]*corev1.Pod, inKubelet func(name string) bool) (soon bool) {
	a.promises.mu.Lock()
	defer a.promises.mu.Unlock()
	for uid, p := range a.promises.kept {
		pod := pods[uid]
		switch {
		case pod != nil && podshare.Terminal(pod), pod == nil && p.gone() && (p.shown || !inKubelet(p.claim.Pod)):
			delete(a.promises.kept, uid)
		case pod == nil:
			soon = true
		case !p.seen:
			p.seen = true
			a.promises.kept[uid] = p
		}
	}
	return soon
}

// differs says how a tenant's slices are not what its pod was placed on, or nothing.
func differs(t tenant.Tenant, pod *corev1.Pod) string {
	placed, err := podshare.Of(pod)
	if err != nil {
		return fmt.Sprintf("it runs, and its pod has no valid placement: %v", err)
	}
	lies, ok := placed.Containers[t.Owner.Container]
	if !ok {
		return "it runs, and its container has no place in its pod's placement"
	}
	same := func(a, b placement.Slice) bool { // the inventory has whole cards in whole MiB
		return a.UUID == b.UUID && a.Core == b.Core && a.Memory/share.MiB == b.Memory/share.MiB
	}
	if !slices.EqualFunc(t.Placement, lies, same) {
		return fmt.Sprintf("it runs with %s, and was placed with %s", sliceList(t.Placement), sliceList(lies))
	}
	if t.Policy != placed.Policy {
		return fmt.Sprintf("it runs by policy %s, and was placed for %s", t.Policy, placed.Policy)
	}
	return ""
}

func sliceList(list []placement.Slice) string {
	out := ""
	for i, s := range list {
		if i > 0 {
			out += ", "
		}
		out += fmt.Sprintf("%d %% and %v of card %d", s.Core, s.Memory, s.Index)
	}
	return out
}

func (a *Agent) report(t tenant.Tenant, pod *corev1.Pod, difference string) {
	a.Log.Warn("a tenant is not as it was placed", "tenant", t.ID, "pod", t.Owner.Namespace+"/"+t.Owner.Pod, "container", t.Owner.Container, "difference", difference)
	if pod != nil {
		a.recorder.Eventf(pod, corev1.EventTypeWarning, "TenantDiffers", "container %s (tenant %s): %s", t.Owner.Container, t.ID, difference)
		return
	}
	a.nodeEvent("TenantDiffers", "container %s of pod %s/%s (tenant %s): %s; end it with the container runtime", t.Owner.Container, t.Owner.Namespace, t.Owner.Pod, t.ID, difference)
}

// nodeEvent puts a warning on the agent's Node.
func (a *Agent) nodeEvent(reason, format string, args ...any) {
	a.recorder.Eventf(a.nodeReference(), corev1.EventTypeWarning, reason, format, args...)
}

// nodeReference is the agent's Node under the uid that the kubelet's events use.
func (a *Agent) nodeReference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.Node, UID: types.UID(a.Node)}
}
