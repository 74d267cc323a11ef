package clusterview

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
)

// would lists what would make the pod fit: less of it, another's end, or a change of a
// node. Each was tried on the cards as they are.
func (v *View) would(p *Pod) []string {
	var open []*Node // nodes where only room is missing
	var list []string
	for i := range v.Nodes {
		n := &v.Nodes[i]
		reasons := slices.Concat(n.Problems, n.refusals(p.Object))
		switch {
		case len(reasons) == 0:
			open = append(open, n)
		case n.room(p.Request):
			list = append(list, fmt.Sprintf("node %s has room on its cards, but %s", n.Name, reasons[0]))
		}
	}
	list = append(list, less(open, p.Request)...)
	ends := v.ends(open, p.Request)
	list = append(list, ends...)
	if len(ends) == 0 && len(open) > 0 && !slices.ContainsFunc(open, func(n *Node) bool { return n.emptied(p.Request) }) {
		list = append(list, "no node that the pod may run on could hold it, were it empty of other tenants; ask for less, or add cards")
	}
	return list
}

// less is how much of the request, of which one number is made smaller, would fit.
func less(nodes []*Node, r *placement.Request) []string {
	var list []string
	for i, k := range r.Containers {
		who := ""
		if len(r.Containers) > 1 {
			who = fmt.Sprintf(" for container %q", k.Name)
		}
		cards := k.Share.Cards()
		if n, memory := largest(nodes, r, i, span{0, int(k.Share.Memory / share.GiB), cards}, func(s *share.Share, v int) {
			s.Memory = share.Memory(v) * share.GiB
		}); n != nil {
			list = append(list, fmt.Sprintf("%d GiB of memory%s instead of %v would fit, on node %s", memory, who, k.Share.Memory, n.Name))
		}
		// On fewer cards it would be another share, unless it is whole cards.
		cores := span{(cards - 1) * share.Whole, k.Share.Core, 5 * cards}
		switch {
		case k.Share.Class != share.Ordinary:
			continue
		case k.Share.WholeCards():
			cores = span{0, k.Share.Core, share.Whole}
		}
		if n, core := largest(nodes, r, i, cores, func(s *share.Share, v int) { s.Core = v }); n != nil {
			list = append(list, fmt.Sprintf("a core of %d%s instead of %d would fit, on node %s", core, who, k.Share.Core, n.Name))
		}
	}
	return list
}

// span is the numbers above and below two bounds that lie whole steps above the first.
type span struct{ above, below, step int }

// largest finds the largest number of a span with which the request fits on some node,
// when set makes it container i's. A smaller request fits wherever a larger one does,
// so halving finds it.
func largest(nodes []*Node, r *placement.Request, i int, of span, set func(*share.Share, int)) (*Node, int) {
	fits := func(m int) *Node {
		smaller := *r
		smaller.Containers = slices.Clone(r.Containers)
		set(&smaller.Containers[i].Share, of.above+m*of.step)
		for _, n := range nodes {
			if n.room(&smaller) {
				return n
			}
		}
		return nil
	}
	count := max(0, (of.below-of.above-1)/of.step)
	most := sort.Search(count, func(m int) bool { return fits(m+1) == nil })
	if most == 0 {
		return nil, 0
	}
	return fits(most), of.above + most*of.step
}

// mostEnds bounds what is listed, the smallest first.
const mostEnds = 3

// ends lists pods of which one alone would make room by ending.
func (v *View) ends(nodes []*Node, r *placement.Request) []string {
	type candidate struct {
		pod  *Pod
		size share.Memory
	}
	var found []candidate
	for _, n := range nodes {
		for _, p := range v.On(n.Name) {
			without := *n
			without.Cards = slices.Clone(n.Cards)
			without.Free(p.Request, p.Placement.Containers)
			without.FreeCPU += p.Request.CPU
			if without.room(r) {
				found = append(found, candidate{p, size(p)})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(a.size, b.size) })
	var list []string
	for _, c := range found[:min(mostEnds, len(found))] {
		list = append(list, fmt.Sprintf("the end of pod %s/%s would make room, on node %s", c.pod.Object.Namespace, c.pod.Object.Name, c.pod.Placement.Node))
	}
	if more := len(found) - mostEnds; more > 0 {
		list = append(list, fmt.Sprintf("so would the end of %d other pod(s), each alone", more))
	}
	return list
}

func size(p *Pod) share.Memory {
	var sum share.Memory
	for _, slices := range p.Placement.Containers {
		for _, s := range slices {
			sum += s.Memory
		}
	}
	return sum
}

// emptied reports whether the node could hold r if it had no tenant.
func (n *Node) emptied(r *placement.Request) bool {
	bare := *n
	bare.Cards = nil
	for _, c := range n.Cards {
		bare.Cards = append(bare.Cards, placement.Card{Index: c.Index, UUID: c.UUID, Model: c.Model, Unhealthy: c.Unhealthy, Memory: c.Memory})
	}
	return bare.room(r)
}
