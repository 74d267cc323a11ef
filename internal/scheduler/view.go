package scheduler

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/qgpu-project/qgpu/internal/inventory"
)

// view is the states of all nodes, as of the last sync. What has not changed is not
// looked at again. It changes in PreFilter alone, which the scheduler runs for one pod
// at a time; between two syncs anyone may read it.
type view struct {
	observer    *observer
	inventories *inventories
	byName      map[string]*record
	present     []*record // the nodes of the last sync, in its order
	free        []int     // ids that no record has
	ids         int       // ids that were ever used
	versions    uint64
	syncs       uint64
	key         []byte
}

// record is a node and its state.
type record struct {
	nodeState
	id         int // below view.ids, unique among records
	generation int64
	epoch      uint64 // of the inventories, when inventory was compared last
	inventory  *inventory.CardInventory
	version    uint64 // a new one, unique in the view, whenever the state is another
	key        string // the state, without CPU
	cpuKey     string // the state, with CPU
	seen       uint64 // the last sync that had the node
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
	present := v.present
	v.present = v.present[:0]
	for i, info := range nodes {
		name := info.Node().Name
		var r *record
		if i < len(present) && present[i].Name == name {
			r = present[i]
		} else {
			r = v.record(name)
		}
		v.present = append(v.present, r)
		r.seen = v.syncs
		generation := info.GetGeneration()
		if r.generation == generation && r.epoch == epoch {
			continue
		}
		inv := v.inventories.get(name)
		if r.generation != generation || r.inventory != inv {
			v.observer.observe(info, inv, &r.nodeState, true)
			v.changed(r)
		}
		r.generation, r.epoch, r.inventory = generation, epoch, inv
	}
	if len(v.present) < len(present) {
		clear(present[len(v.present):]) // lets go of nodes that are no more
	}
	if v.syncs%forgetAfter == 0 {
		v.forget()
	}
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
}

func (v *view) record(name string) *record {
	if r := v.byName[name]; r != nil {
		return r
	}
	r := &record{id: v.ids}
	if last := len(v.free) - 1; last >= 0 {
		r.id, v.free = v.free[last], v.free[:last]
	} else {
		v.ids++
	}
	r.Name = name
	v.byName[name] = r
	return r
}

func (v *view) forget() {
	for name, r := range v.byName {
		if r.seen+forgetAfter <= v.syncs {
			delete(v.byName, name)
			v.free = append(v.free, r.id)
		}
	}
}

// at is the record that is of the same moment as info; nil: there is none.
func (v *view) at(info fwk.NodeInfo) *record {
	if r := v.byName[info.Node().Name]; r != nil && r.generation == info.GetGeneration() {
		return r
	}
	return nil
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
