package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/internal/agent/ledger"
	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
)

// Grant implements agentapi.Granter: it says what a container may have. Asked again it
// answers the same, until the pod is another.
func (a *Agent) Grant(ctx context.Context, c agentapi.Container) (agentapi.Grant, error) {
	if err := a.Ready(); err != nil {
		return agentapi.Grant{}, temporary("%v", err)
	}
	pod, err := a.findPod(ctx, c)
	if err != nil {
		return agentapi.Grant{}, err
	}
	grant, err := a.grant(pod, c.Name)
	var refusal *agentapi.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Temporary:
		a.Log.Info("a container must wait", "pod", c.PodNamespace+"/"+c.PodName, "container", c.Name, "reason", refusal.Reason)
	case errors.As(err, &refusal):
		a.Log.Warn("refused a container", "pod", c.PodNamespace+"/"+c.PodName, "container", c.Name, "reason", refusal.Reason)
		a.recorder.Eventf(pod, corev1.EventTypeWarning, "CardRefused", "container %s: %s", c.Name, refusal.Reason)
	case err == nil && grant.Slices != nil:
		a.Log.Info("granted a container its slices", "pod", c.PodNamespace+"/"+c.PodName, "uid", c.PodUID, "container", c.Name, "slices", grant.Slices)
	}
	return grant, err
}

func temporary(format string, args ...any) error {
	return &agentapi.Refusal{Reason: fmt.Sprintf(format, args...), Temporary: true}
}

func refused(format string, args ...any) error {
	return &agentapi.Refusal{Reason: fmt.Sprintf(format, args...)}
}

// findPod is the pod that c is a container of: as watched, or if that is not up to date,
// as the API server has it.
func (a *Agent) findPod(ctx context.Context, c agentapi.Container) (*corev1.Pod, error) {
	object, exists, err := a.pods.GetStore().GetByKey(c.PodNamespace + "/" + c.PodName)
	if err == nil && exists && isPod(object.(*corev1.Pod), c.PodUID) {
		return object.(*corev1.Pod), nil
	}
	pod, err := a.Client.CoreV1().Pods(c.PodNamespace).Get(ctx, c.PodName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, refused("pod %s/%s is not known to the API server; it was deleted, or it is another cluster's", c.PodNamespace, c.PodName)
	case err != nil:
		return nil, temporary("the API server does not say what pod %s/%s is: %v", c.PodNamespace, c.PodName, err)
	case !isPod(pod, c.PodUID):
		return nil, refused("pod %s/%s with uid %s is gone, and another has its name", c.PodNamespace, c.PodName, c.PodUID)
	}
	return pod, nil
}

// isPod reports whether uid, as the kubelet tells it to the runtime, is pod's. A static
// pod has another uid at the kubelet than its mirror at the API server, which notes it.
func isPod(pod *corev1.Pod, uid string) bool {
	return string(pod.UID) == uid || pod.Annotations[corev1.MirrorPodAnnotationKey] == uid
}

func (a *Agent) grant(pod *corev1.Pod, name string) (agentapi.Grant, error) {
	driver, _, list := a.cards.snapshot()
	none := agentapi.Grant{Driver: driver}
	if pod.Spec.NodeName != a.Node {
		return none, refused("pod %s/%s is on node %q, and this is node %s", pod.Namespace, pod.Name, pod.Spec.NodeName, a.Node)
	}
	if !hasContainer(pod, name) {
		return none, refused("pod %s/%s has no container %q", pod.Namespace, pod.Name, name)
	}
	request, err := a.reader().Request(pod)
	if err != nil {
		return none, refused("the pod's request is not valid: %v", err)
	}
	if request == nil {
		return none, nil
	}
	at := slices.IndexFunc(request.Containers, func(c placement.Container) bool { return c.Name == name })
	if at < 0 {
		none.Outsider = true
		return none, nil
	}
	claim, err := a.claim(pod, request, list)
	if err != nil {
		return none, refused("%v", err)
	}
	lies := claim.Lies[name]
	if err := a.promise(claim, lies, list); err != nil {
		return none, err
	}
	s := request.Containers[at].Share
	if request.Containers[at].Proportional {
		for _, slice := range lies {
			s.Memory += slice.Memory
		}
	}
	return agentapi.Grant{Share: s, Policy: claim.Policy, Slices: lies, Driver: driver}, nil
}

func (a *Agent) reader() podshare.Reader { return podshare.Reader{Nano: a.NanoNames} }

func hasContainer(pod *corev1.Pod, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(pod.Spec.Containers, named) || slices.ContainsFunc(pod.Spec.InitContainers, named) ||
		slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

// claim reads pod's placement and checks it against the pod's own request and the node's
// cards. The error says why it is none, in a sentence.
func (a *Agent) claim(pod *corev1.Pod, request *placement.Request, list []inventory.Card) (ledger.Claim, error) {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return ledger.Claim{}, errors.New("a static pod cannot have a share of a card, since nobody schedules it; make it a pod of the API server")
	}
	placed, err := podshare.Of(pod)
	if err != nil {
		return ledger.Claim{}, err
	}
	if err := placed.Check(request, a.Node); err != nil {
		return ledger.Claim{}, fmt.Errorf("the placement is not this pod's: %w", err)
	}
	node := placement.Node{Name: a.Node, Cards: placementCards(list)}
	if err := node.Verify(request, placed.Containers); err != nil {
		return ledger.Claim{}, fmt.Errorf("the placement does not fit this node: %w; delete the pod, so that it is placed anew", err)
	}
	return ledger.Claim{
		UID: string(pod.UID), Pod: pod.Namespace + "/" + pod.Name, Since: scheduled(pod),
		Request: request, Lies: placed.Containers, Policy: placed.Policy,
		Ending: pod.DeletionTimestamp != nil,
	}, nil
}

// scheduled is when pod was put on its node, to the second.
func scheduled(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// promise lets the pod of claim have its place, if the cards of lies are healthy and
// nobody else has it. From then on nobody else gets it while the pod is there.
func (a *Agent) promise(claim ledger.Claim, lies []placement.Slice, list []inventory.Card) error {
	for _, slice := range lies {
		at := slices.IndexFunc(list, func(c inventory.Card) bool { return c.UUID == slice.UUID })
		if reason := list[at].Unhealthy; reason != "" { // claim saw to it that the card is there
			return refused("card %d is unhealthy: %s", list[at].Index, reason)
		}
	}
	a.promises.mu.Lock()
	defer a.promises.mu.Unlock()
	claim.Promised = a.promises.has(claim.UID)
	facts, err := a.facts(list)
	if err != nil {
		return temporary("the tenants of this node cannot be read: %v", err)
	}
	if !slices.ContainsFunc(facts.Claims, func(c ledger.Claim) bool { return c.UID == claim.UID }) {
		facts.Claims = append(facts.Claims, claim) // its event has not come yet
	}
	account := ledger.Settle(facts)
	if err := account.Refusal(claim.UID); errors.Is(err, ledger.ErrEnding) {
		return temporary("%v", err)
	} else if err != nil {
		return refused("its place is taken: %v", err)
	}
	a.promises.keep(claim)
	return nil
}
