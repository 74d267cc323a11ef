package replay

// Place is where a pod lies: on which cards of which node. A pod that found no room has none.
type Place struct {
	Node  string
	Cards []int
}

// Sequence places t's pods one after the other in the trace's order, under a policy that
// draws no lots; all stay. Of equally good nodes the one that comes first in t is taken.
// It is what a scheduler does that sees the same pods.
func Sequence(t *Trace, policy string) []Place {
	ready, shapes := prepare(t.Pods)
	c := newCluster(t.Nodes, nil)
	chooser := newChooser(c, newRater(policy, setting{target: declared(t.Pods), cluster: c}), shapes)
	places := make([]Place, len(ready))
	for i := range ready {
		if node, card, ok := chooser.choose(&ready[i]); ok {
			at := c.put(node, card, &ready[i])
			places[i] = Place{Node: c.nodes[node].Name, Cards: at.cards}
		}
	}
	return places
}
