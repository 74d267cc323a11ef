package podshare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// Placement is the value of the annotation PlacementNote, as JSON.
type Placement struct {
	Node       string               `json:"node"`
	Policy     share.Policy         `json:"policy"`
	Containers placement.Assignment `json:"containers"`
}

// maxNote is the most bytes that the annotation may have: some hundred containers
// with some cards each.
const maxNote = 64 << 10

// Encode writes p as the annotation's value.
func (p *Placement) Encode() (string, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("write the placement: %w", err)
	}
	if len(data) > maxNote {
		return "", fmt.Errorf("the placement of %d containers takes %d bytes, and an annotation of %d is allowed", len(p.Containers), len(data), maxNote)
	}
	return string(data), nil
}

// Of is pod's placement. The error says why it has none that can be used.
func Of(pod *corev1.Pod) (*Placement, error) {
	note, ok := pod.Annotations[PlacementNote]
	if !ok {
		return nil, errNoPlacement
	}
	return Decode(note)
}

// Decode reads the annotation's value. Whatever it is given, what it returns is
// bounded and consistent in itself; Check compares it with a pod.
func Decode(note string) (*Placement, error) {
	if len(note) > maxNote {
		return nil, fmt.Errorf("annotation %s has %d bytes, and %d is the most", PlacementNote, len(note), maxNote)
	}
	var p Placement
	decoder := json.NewDecoder(strings.NewReader(note))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return nil, fmt.Errorf("annotation %s is no placement: %w", PlacementNote, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("annotation %s has something after the placement", PlacementNote)
	}
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", PlacementNote, err)
	}
	return &p, nil
}

func (p *Placement) validate() error {
	if p.Node == "" {
		return errors.New("it names no node")
	}
	if policy, err := share.ParsePolicy(string(p.Policy)); err != nil || policy != p.Policy {
		return fmt.Errorf("policy %q is unknown; the policies are best-effort, fixed-share and burst-share", string(p.Policy))
	}
	if len(p.Containers) == 0 {
		return errors.New("it places no container")
	}
	for name, slices := range p.Containers {
		if name == "" || len(slices) == 0 {
			return fmt.Errorf("container %q lies on no card", name)
		}
		for i, s := range slices {
			if err := validateSlice(s); err != nil {
				return fmt.Errorf("container %q: %w", name, err)
			}
			for _, other := range slices[:i] {
				if other.UUID == s.UUID || other.Index == s.Index {
					return fmt.Errorf("container %q has two slices of card %s", name, s.UUID)
				}
			}
		}
	}
	return nil
}

// largestCard is more memory than any card has.
const largestCard = 1 << 20 * share.GiB

func validateSlice(s placement.Slice) error {
	switch _, err := share.ParseClass(string(s.Class)); {
	case err != nil:
		return err
	case s.Class == "ordinary": // the empty string says so
		return errors.New("class ordinary is not spelled out")
	case s.UUID == "":
		return fmt.Errorf("the slice of card %d names no UUID", s.Index)
	case s.Index < 0 || s.Index > 1<<16:
		return fmt.Errorf("card %s has index %d", s.UUID, s.Index)
	case s.Core < 0 || s.Core > share.Whole:
		return fmt.Errorf("card %s: core %d is not within 0…100", s.UUID, s.Core)
	case s.Memory <= 0 || s.Memory > largestCard:
		return fmt.Errorf("card %s: memory %d is out of range", s.UUID, s.Memory)
	}
	return nil
}

// Check reports how p differs from what request asks for, or nil if p places it, on
// node. The memory of whole cards, and that which goes with core, p alone knows: to
// compare it with the cards is left to those who have them.
func (p *Placement) Check(request *placement.Request, node string) error {
	if p.Node != node {
		return fmt.Errorf("the placement is for node %s, and the pod is on %s", p.Node, node)
	}
	if request == nil {
		return errors.New("the pod has a placement and asks for no share")
	}
	for i := range request.Containers {
		c := &request.Containers[i]
		if err := checkContainer(p.Containers[c.Name], c); err != nil {
			return fmt.Errorf("container %q: %w", c.Name, err)
		}
	}
	if len(p.Containers) != len(request.Containers) {
		return fmt.Errorf("the placement has %d containers, and %d ask for a share", len(p.Containers), len(request.Containers))
	}
	return nil
}

func checkContainer(slices []placement.Slice, c *placement.Container) error {
	if len(slices) != c.Share.Cards() {
		return fmt.Errorf("it is placed on %d card(s) and asks for %d", len(slices), c.Share.Cards())
	}
	part := c.Share.PerCard()
	for _, s := range slices {
		ownMemory := !c.Proportional && !c.Share.WholeCards()
		if s.Core != part.Core || s.Class != part.Class || ownMemory && s.Memory != part.Memory {
			return fmt.Errorf("on card %s it is placed with core %d, memory %v and class %v, and it asks for core %d, memory %v and class %v",
				s.UUID, s.Core, s.Memory, s.Class, part.Core, part.Memory, part.Class)
		}
	}
	return nil
}
