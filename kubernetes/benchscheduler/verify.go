package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/internal/share"
)

// verify adds up, from what is in the API server, what each card was given, and reports a
// pod that was given another share than it asks for, or a card more than it has.
func (s *site) verify(ctx context.Context) error {
	list, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: kindLabel + "=" + string(sharedKind)})
	if err != nil {
		return err
	}
	given := make(map[string]*placement.Card)
	for i := range list.Items {
		pod := &list.Items[i]
		p, err := podshare.Of(pod)
		if err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		request, err := podshare.Reader{}.Request(pod)
		if err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		if err := p.Check(request, pod.Spec.NodeName); err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		for _, lies := range p.Containers {
			for _, slice := range lies {
				card := given[slice.UUID]
				if card == nil {
					card = &placement.Card{UUID: slice.UUID, Memory: cardGiB * share.GiB}
					given[slice.UUID] = card
				}
				if alone := card.Whole || slice.Core == share.Whole && slice.Memory == card.Memory; alone && card.Tenants > 0 {
					return fmt.Errorf("card %s is given as a whole and to others", card.UUID)
				}
				card.Take(slice)
				if card.Taken > card.Memory || card.Core > share.Whole || card.Tenants > placement.MaxTenants {
					return fmt.Errorf("card %s is given too much: %+v", card.UUID, *card)
				}
			}
		}
	}
	return nil
}
