package kubecmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/qgpu-project/qgpu/internal/agentapi"
	"github.com/qgpu-project/qgpu/internal/clusterview"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Asking agents: all at once would be a burst at the API server, through which it goes.
const (
	askedAtOnce = 32
	usePatience = 5 * time.Second
)

// uses is what the agents of a cluster tell of their tenants' use.
type uses struct {
	cards      map[string]agentapi.CardUse // by UUID
	containers map[containerKey]agentapi.ContainerUse
	told       map[string]bool // the nodes whose agent told it
	problems   []string        // why others did not, by node
}

type containerKey struct{ podUID, container string }

// asker asks one agent, which listens on a port of a pod.
type asker func(ctx context.Context, agent *corev1.Pod, port int32) ([]byte, error)

// throughServer asks agents through the API server.
func throughServer(config *rest.Config) (asker, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, agent *corev1.Pod, port int32) ([]byte, error) {
		pods := client.CoreV1().Pods(agent.Namespace)
		return pods.ProxyGet("http", agent.Name, strconv.Itoa(int(port)), agentapi.UsePath, nil).DoRaw(ctx)
	}, nil
}

// usesOf asks the agents among objects that are on nodes, or all where nodes is nil.
func usesOf(ctx context.Context, config *rest.Config, objects clusterview.Objects, nodes map[string]bool) (uses, error) {
	ask, err := throughServer(config)
	if err != nil {
		return uses{}, err
	}
	return readUses(ctx, objects.Pods, nodes, ask), nil
}

// readUses asks the agents among pods that are on nodes, or all where nodes is nil. One that
// does not answer is a problem, and no error.
func readUses(ctx context.Context, pods []corev1.Pod, nodes map[string]bool, ask asker) uses {
	u := uses{cards: map[string]agentapi.CardUse{}, containers: map[containerKey]agentapi.ContainerUse{}, told: map[string]bool{}}
	var (
		mu    sync.Mutex
		all   sync.WaitGroup
		slots = make(chan struct{}, askedAtOnce)
	)
	for i := range pods {
		pod := &pods[i]
		if !isAgent(pod) || nodes != nil && !nodes[pod.Spec.NodeName] {
			continue
		}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			use, err := askAgent(ctx, pod, ask)
			mu.Lock()
			defer mu.Unlock()
			u.add(pod.Spec.NodeName, use, err)
		})
	}
	all.Wait()
	slices.Sort(u.problems)
	return u
}

func askAgent(ctx context.Context, agent *corev1.Pod, ask asker) (agentapi.Use, error) {
	port := usePort(agent)
	if port == 0 {
		return agentapi.Use{}, fmt.Errorf("the chart's agent.port is 0")
	}
	ctx, cancel := context.WithTimeout(ctx, usePatience)
	defer cancel()
	text, err := ask(ctx, agent, port)
	if err != nil {
		return agentapi.Use{}, err
	}
	return agentapi.ParseUse(text)
}

// add takes what a node's agent told, or why it did not.
func (u *uses) add(node string, use agentapi.Use, err error) {
	if err != nil {
		u.problems = append(u.problems, fmt.Sprintf("%s: what is used there is not known: %v", node, err))
		return
	}
	u.told[node] = true
	for _, c := range use.Cards {
		u.cards[c.UUID] = c
	}
	for _, c := range use.Containers {
		u.containers[containerKey{c.PodUID, c.Name}] = c
	}
}

// isAgent reports whether pod is one of the chart's agents, and runs.
func isAgent(pod *corev1.Pod) bool {
	return pod.Labels["app.kubernetes.io/name"] == "qgpu" && pod.Labels["app.kubernetes.io/component"] == "agent" &&
		pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}

// usePort is where an agent tells what is used, or 0.
func usePort(agent *corev1.Pod) int32 {
	for _, c := range agent.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == "use" {
				return p.ContainerPort
			}
		}
	}
	return 0
}

// container is what one container uses: memory and, where that is known of all its cards,
// percent of a card's compute. Both are nil where nothing is known; problem is why, if its
// agent told that.
func (u uses) container(podUID, name string) (used *share.Memory, busy *float64, problem string) {
	use, ok := u.containers[containerKey{podUID, name}]
	switch {
	case !ok:
		return nil, nil, ""
	case use.Error != "":
		return nil, nil, "what it uses is not known: " + use.Error
	}
	var memory share.Memory
	compute, known := 0.0, true
	for _, s := range use.Slices {
		memory += s.Used
		if known = known && s.Busy != nil; known {
			compute += *s.Busy
		}
	}
	if known {
		busy = &compute
	}
	return &memory, busy, ""
}

// card is what is used of one card of a node: nothing where its agent knows of no tenant.
func (u uses) card(node, uuid string) (used *share.Memory, busy *float64) {
	if !u.told[node] {
		return nil, nil
	}
	use, ok := u.cards[uuid]
	if !ok {
		return new(share.Memory), new(float64)
	}
	return &use.Used, use.Busy
}

func usedText(m *share.Memory) string {
	if m == nil {
		return "-"
	}
	return m.String()
}

func busyText(b *float64) string {
	if b == nil {
		return "-"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", *b), ".0") + "%"
}

// writeProblems writes why some of what is used is not known.
func writeProblems(w io.Writer, problems []string) error {
	for _, p := range problems {
		if _, err := fmt.Fprintf(w, "\n%s\n", p); err != nil {
			return err
		}
	}
	return nil
}
