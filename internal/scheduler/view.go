package scheduler

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/podshare"
)

// view is the states of all nodes, as of the last sync. What has not changed is not
// looked at again. It changes in PreFilter alone, which the scheduler runs for one pod
// at a time; between two syncs anyone may read it.
type view struct {
	observer    *observer
	inventories *inventories
	byName      map[string]*record
	byID        []*record // nil: the id is free
	free        []int     // ids that no record has
	present     []*record // the nodes of the last sync, in its order
	generations []int64   // of present, side by side: most syncs read nothing else
	moments     moments
	epoch       uint64 // of the inventories, at the last sync
	versions    uint64
	changes     []*record // in the order of their versions; some may be there twice
	dropped     uint64    // the last version that is in changes no more
	syncs       uint64
	experienced bool   // those that learn have seen the pods that are there already
	relabelled  uint64 // counts changes of nodes' labels and of their cards' models
	models      podshare.KnownModels
	kinds       [][]string // of nodes, by the models of their cards
	found       []foundPod // on nodes that are new in this sync
	key         []byte
	before      placement.Node   // the cards of a node that is observed anew; kept for its memory
	clock       func() time.Time // of tests
}

// record is a node and its state.
type record struct {
	nodeState
	id         int    // its place in view.byID
	rank       uint64 // among equals, by the seed
	kind       int    // its place in view.kinds
	generation int64
	object     *corev1.Node
	inventory  *inventory.CardInventory
	learned    bool      // those that learn have seen its pods
	version    uint64    // a new one, unique in the view, whenever the state is another
	key        string    // the state, without CPU
	cpuKey     string    // the state, with CPU
	freed      time.Time // when a tenant left last
	seen       uint64    // a sync that had the node, not long before the last
}

// foundPod is a pod that had its node before the view saw it.
type foundPod struct {
	pod     *corev1.Pod
	request *placement.Request
}

// forgetAfter is how many syncs a node may be away before its record goes. A sync may be
// of a part of the nodes.
const forgetAfter = 1000

func newView(o *observer, inv *inventories) *view {
	return &view{observer: o, inventories: inv, byName: make(map[string]*record)}
}

// sync brings the view to the state of nodes.
func (v *view) sync(nodes []fwk.NodeInfo) {
	v.syncs++
	epoch := v.inventories.now()
	if len(nodes) < len(v.present) {
		clear(v.present[len(nodes):]) // lets go of nodes that are no more
	}
	v.present = slices.Grow(v.present[:min(len(v.present), len(nodes))], len(nodes))[:len(nodes)]
	v.generations = slices.Grow(v.generations[:min(len(v.generations), len(nodes))], len(nodes))[:len(nodes)]
	for i, info := range nodes {
		// A generation is of one node alone, and of one moment of it.
		if generation := info.GetGeneration(); v.generations[i] != generation || v.epoch != epoch || v.present[i] == nil {
			v.present[i] = v.look(info, generation)
			v.generations[i] = generation
		}
	}
	v.epoch = epoch
	for _, p := range v.found {
		if models, ok := v.modelsOf(p.pod); ok {
			v.learn(p.request, models)
		}
	}
	v.found = nil
	if v.syncs%forgetAfter == 0 {
		v.forget()
	}
}

// look brings the record of one node up to date.
func (v *view) look(info fwk.NodeInfo, generation int64) *record {
	name := info.Node().Name
	r := v.byName[name]
	if r == nil {
		r = v.add(name)
	}
	inv := v.inventories.get(name)
	if r.generation != generation || r.inventory != inv || r.version == 0 {
		v.observe(r, info, inv)
	}
	if r.generation != generation {
		r.generation = generation
		v.moments.put(r, v.byID)
	}
	r.object, r.inventory, r.seen = info.Node(), inv, v.syncs
	return r
}

// observe makes r's state anew, and lets those that learn know. Of a node whose cards are
// new they also learn what its pods had asked for, if they would begin with nothing: when
// all nodes are known, since which models a pod may have depends on all.
func (v *view) observe(r *record, info fwk.NodeInfo, inv *inventory.CardInventory) {
	book := v.observer.book
	var before *placement.Node
	if r.version != 0 {
		v.before.Cards = append(v.before.Cards[:0], r.Cards...)
		before = &v.before
	}
	v.observer.observe(info, inv, &r.nodeState, true)
	book.Update(before, &r.Node)
	if before != nil && tenantsOf(&r.Node) < tenantsOf(before) {
		r.freed = v.now()
	}
	if !r.sameChoice(info.Node(), inv) {
		v.relabelled++
		r.kind = v.kindOf(r.Cards)
	}
	if !r.learned && inv != nil && !v.experienced {
		r.learned = true
		for _, p := range info.GetPods() {
			if h := r.holdings[p.GetPod().UID]; h != nil && h.note != "" {
				v.found = append(v.found, foundPod{p.GetPod(), h.request})
			}
		}
	}
	v.changed(r)
}

// changed gives r a new version if its state is another.
func (v *view) changed(r *record) {
	v.key = append(r.AppendState(v.key[:0], true), r.problem...)
	if r.version != 0 && string(v.key) == r.cpuKey {
		return
	}
	r.cpuKey = string(v.key)
	v.key = append(r.AppendState(v.key[:0], false), r.problem...)
	if string(v.key) != r.key {
		r.key = string(v.key)
	}
	v.versions++
	r.version = v.versions
	if v.changes = append(v.changes, r); len(v.changes) > 4*len(v.byID)+1000 {
		half := len(v.changes) / 2
		v.dropped += uint64(half)
		v.changes = slices.Delete(v.changes, 0, half)
	}
}

// since lists the records that have changed after a version.
func (v *view) since(version uint64) []*record {
	if version < v.dropped {
		return slices.DeleteFunc(slices.Clone(v.byID), func(r *record) bool { return r == nil })
	}
	return v.changes[version-v.dropped:]
}

// has reports whether r was not forgotten.
func (v *view) has(r *record) bool { return v.byID[r.id] == r }

func (v *view) add(name string) *record {
	r := &record{id: len(v.byID), rank: v.observer.args.Rank(name)}
	if last := len(v.free) - 1; last >= 0 {
		r.id, v.free = v.free[last], v.free[:last]
		v.byID[r.id] = r
	} else {
		v.byID = append(v.byID, r)
	}
	r.Name = name
	v.byName[name] = r
	return r
}

func (v *view) forget() {
	for _, r := range v.present {
		r.seen = v.syncs
	}
	for name, r := range v.byName {
		if r.seen+forgetAfter <= v.syncs {
			delete(v.byName, name)
			v.relabelled++
			v.observer.book.Update(&r.Node, nil)
			v.byID[r.id] = nil
			v.free = append(v.free, r.id)
		}
	}
}

// fresh is the state of a node at a moment that the view has not seen: with pods that
// another plugin tries to do without, or with pods that are to come.
func (v *view) fresh(info fwk.NodeInfo) *nodeState {
	var state nodeState
	if r := v.byName[info.Node().Name]; r != nil {
		state.holdings = r.holdings
	}
	v.observer.observe(info, v.inventories.get(info.Node().Name), &state, false)
	return &state
}
