package ledger

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/placement"
	"github.com/qgpu-project/qgpu/internal/share"
	"github.com/qgpu-project/qgpu/internal/tenant"
)

func card(i int, memory share.Memory) placement.Card {
	return placement.Card{Index: i, UUID: fmt.Sprintf("GPU-%d", i), Memory: memory}
}

// one is a claim of a single container on the first card.
func one(uid string, second int, s share.Share) Claim {
	c := card(0, 16*share.GiB)
	return Claim{
		UID: uid, Pod: "ns/" + uid, Since: time.Unix(int64(second), 0), Policy: share.BestEffort,
		Request: &placement.Request{Containers: []placement.Container{{Name: "main", Share: s}}},
		Lies:    placement.Assignment{"main": {c.Quota(s)}},
	}
}

func run(c Claim) tenant.Tenant {
	return tenant.Tenant{
		ID: c.UID, Placement: c.Lies["main"], Policy: c.Policy,
		Owner: &tenant.Owner{PodUID: c.UID, Namespace: "ns", Pod: c.UID, Container: "main"},
	}
}

func TestSettle(t *testing.T) {
	half := share.Share{Core: 50, Memory: 8 * share.GiB}
	most := share.Share{Core: 60, Memory: 9 * share.GiB}
	a, b, c := one("a", 1, half), one("b", 2, half), one("c", 3, half)
	with := func(c Claim, change func(*Claim)) Claim { change(&c); return c }
	resized := run(a)
	resized.Placement = []placement.Slice{{UUID: "GPU-0", Core: 50, Memory: 10 * share.GiB}}
	outside := run(a)
	outside.Owner = nil
	for _, tc := range []struct {
		name    string
		claims  []Claim
		tenants []tenant.Tenant
		refused map[string]string // a part of why
		taken   share.Memory
	}{
		{"all fit", []Claim{a, b}, nil, nil, 16 * share.GiB},
		{"who came last is refused", []Claim{c, b, a}, nil, map[string]string{"c": "card 0 has 0"}, 16 * share.GiB},
		{"who runs has its place, though it came last", []Claim{a, b, c}, []tenant.Tenant{run(c)}, map[string]string{"b": "card 0"}, 16 * share.GiB},
		{"a promise is kept", []Claim{a, b, with(c, func(c *Claim) { c.Promised = true })}, nil, map[string]string{"b": "card 0"}, 16 * share.GiB},
		{"a small one fits where a large one did not", []Claim{a, one("big", 2, most), one("small", 3, half)}, nil, map[string]string{"big": "card 0"}, 16 * share.GiB},
		{"a tenant of a pod that is gone has its place", []Claim{b, c}, []tenant.Tenant{run(a)}, map[string]string{"c": "ends"}, 16 * share.GiB},
		{"a tenant that is no pod's has its place", []Claim{b, c}, []tenant.Tenant{outside}, map[string]string{"c": "card 0"}, 16 * share.GiB},
		{"a pod that ends has its place", []Claim{with(a, func(c *Claim) { c.Ending = true }), b, c}, nil, map[string]string{"c": "ends"}, 16 * share.GiB},
		{"a share that grew counts as it is", []Claim{a, b}, []tenant.Tenant{resized}, map[string]string{"b": "card 0"}, 10 * share.GiB},
		{"another policy", []Claim{a, with(b, func(c *Claim) { c.Policy = share.FixedShare })}, nil, map[string]string{"b": "policy best-effort"}, 8 * share.GiB},
		{"too much runs", []Claim{one("a", 1, most), one("b", 2, most)}, []tenant.Tenant{run(one("a", 1, most)), run(one("b", 2, most))}, nil, 18 * share.GiB},
	} {
		t.Run(tc.name, func(t *testing.T) {
			account := Settle(Facts{Cards: []placement.Card{card(0, 16*share.GiB)}, Claims: tc.claims, Tenants: tc.tenants})
			for _, c := range tc.claims {
				err, want := account.Refusal(c.UID), tc.refused[c.UID]
				if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", c.UID, err, want)
				}
				if errors.Is(err, ErrEnding) != (want == "ends") {
					t.Errorf("%s: an end will help: %v", c.UID, err)
				}
			}
			if got := account.Node.Cards[0].Taken; got != tc.taken {
				t.Errorf("%v are taken, want %v", got, tc.taken)
			}
		})
	}
	if err := Settle(Facts{}).Refusal("nobody"); err == nil {
		t.Error("a pod that is not there has a place")
	}
}

// world is a node as it is, which the ledger sees through its facts.
type world struct {
	cards    []placement.Card
	pods     map[string]Claim
	tenants  map[string]tenant.Tenant // by pod/container
	promised map[string]bool          // pods; the agent's memory
	granted  map[string]bool          // by pod/container: its runtime may start it
	clock    int
}

func (w *world) facts(remember bool) Facts {
	f := Facts{Cards: w.cards}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		c := w.pods[uid]
		c.Promised = remember && w.promised[uid]
		f.Claims = append(f.Claims, c)
	}
	for _, id := range slices.Sorted(maps.Keys(w.tenants)) {
		f.Tenants = append(f.Tenants, w.tenants[id])
	}
	return f
}

// bind puts a pod on the node by what a scheduler thinks is free there, which may be old.
func (w *world) bind(t *rapid.T) {
	request := &placement.Request{}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		s := share.Share{Core: 5 * rapid.IntRange(1, 20).Draw(t, "core"), Memory: share.Memory(rapid.IntRange(1, 12).Draw(t, "memory")) * share.GiB}
		if s.Core == share.Whole && rapid.Bool().Draw(t, "whole") {
			s.Memory = 0
		}
		stage := rapid.SampledFrom([]placement.Stage{placement.App, placement.Init, placement.Sidecar}).Draw(t, "stage")
		request.Containers = append(request.Containers, placement.Container{Name: fmt.Sprint("c", i), Share: s, Stage: stage})
	}
	slices.SortStableFunc(request.Containers, func(a, b placement.Container) int { // apps come last
		return first(a.Stage != placement.App, b.Stage != placement.App)
	})
	view := placement.Node{Cards: slices.Clone(w.cards)}
	if rapid.Bool().Draw(t, "knows what is free") {
		view = Settle(w.facts(true)).Node
	}
	var p placement.Placer
	if !p.Place(&view, request, nil) {
		return
	}
	w.clock++
	uid := fmt.Sprint("pod", w.clock)
	w.pods[uid] = Claim{UID: uid, Pod: "ns/" + uid, Since: time.Unix(int64(w.clock), 0), Request: request, Lies: p.Assignment(), Policy: share.BestEffort}
}

// ask is what the agent does when a container is about to start.
func (w *world) ask(t *rapid.T) {
	uid, container, ok := w.choose(t)
	if !ok {
		return
	}
	was := w.promised[uid] || w.runs(uid)
	err := Settle(w.facts(true)).Refusal(uid)
	if was && err != nil {
		t.Fatalf("%s was promised its place or runs, and is refused: %v", uid, err)
	}
	if err == nil {
		w.promised[uid], w.granted[uid+"/"+container] = true, true
	}
}

func (w *world) runs(uid string) bool {
	for _, t := range w.tenants {
		if t.Owner.PodUID == uid {
			return true
		}
	}
	return false
}

func (w *world) choose(t *rapid.T) (uid, container string, ok bool) {
	if len(w.pods) == 0 {
		return "", "", false
	}
	uid = rapid.SampledFrom(slices.Sorted(maps.Keys(w.pods))).Draw(t, "pod")
	return uid, rapid.SampledFrom(w.pods[uid].Request.Containers).Draw(t, "container").Name, true
}

// start is what the runtime does with a grant. A kubelet keeps to the stages: it starts an
// init container when no other runs but sidecars before it, and apps when no init
// container does.
func (w *world) start(t *rapid.T) {
	uid, name, ok := w.choose(t)
	if id := uid + "/" + name; !ok || !w.granted[id] || !w.turn(uid, name) {
		return
	}
	c := w.pods[uid]
	w.tenants[uid+"/"+name] = tenant.Tenant{
		ID: uid + "/" + name, Placement: c.Lies[name], Policy: c.Policy, Owner: &tenant.Owner{PodUID: uid, Pod: uid, Namespace: "ns", Container: name},
	}
}

func (w *world) turn(uid, name string) bool {
	containers := w.pods[uid].Request.Containers
	at := slices.IndexFunc(containers, func(c placement.Container) bool { return c.Name == name })
	for i, other := range containers {
		_, runs := w.tenants[uid+"/"+other.Name]
		if runs && i != at && (other.Stage == placement.Init || containers[at].Stage == placement.Init && (i > at || other.Stage == placement.App)) {
			return false
		}
	}
	return true
}

// overfull says which card the tenants that live have too much of, counted one by one.
func (w *world) overfull() error {
	for _, c := range w.cards {
		var memory share.Memory
		var core, tenants, whole int
		for _, t := range w.tenants {
			for _, s := range t.Placement {
				if s.UUID != c.UUID {
					continue
				}
				memory, core, tenants = memory+s.Memory, core+s.Core, tenants+1
				if s.Core == share.Whole && s.Memory == c.Memory {
					whole++
				}
			}
		}
		if memory > c.Memory || core > share.Whole || tenants > placement.MaxTenants || whole > 0 && tenants > 1 {
			return fmt.Errorf("card %d: %v of %v, core %d, %d tenants, %d of them whole", c.Index, memory, c.Memory, core, tenants, whole)
		}
	}
	return nil
}

func TestNeverOverfull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{pods: map[string]Claim{}, tenants: map[string]tenant.Tenant{}, promised: map[string]bool{}, granted: map[string]bool{}}
		for i := range rapid.IntRange(1, 3).Draw(t, "cards") {
			w.cards = append(w.cards, card(i, share.Memory(rapid.IntRange(8, 24).Draw(t, "card"))*share.GiB))
		}
		t.Repeat(map[string]func(*rapid.T){
			"bind":  w.bind,
			"ask":   w.ask,
			"start": w.start,
			"end": func(t *rapid.T) {
				if uid, name, ok := w.choose(t); ok {
					delete(w.tenants, uid+"/"+name)
				}
			},
			"delete": func(t *rapid.T) { // the API server forgets a pod once its containers have ended
				uid, _, ok := w.choose(t)
				if !ok || w.runs(uid) {
					return
				}
				for _, c := range w.pods[uid].Request.Containers {
					delete(w.granted, uid+"/"+c.Name)
				}
				delete(w.pods, uid)
				delete(w.promised, uid)
			},
			"crash": func(t *rapid.T) { // when what was promised runs; else the registry decides
				if w.allStarted() {
					clear(w.promised)
					clear(w.granted)
				}
			},
			"": func(t *rapid.T) {
				if err := w.overfull(); err != nil {
					t.Fatal(err)
				}
				live := Settle(w.facts(true))
				if w.allStarted() {
					if rebuilt := Settle(w.facts(false)); !reflect.DeepEqual(live.Node, rebuilt.Node) || !sameRefusals(live, rebuilt) {
						t.Fatalf("rebuilt %+v, live %+v", rebuilt, live)
					}
				}
			},
		})
	})
}

// allStarted reports whether every pod that was promised its place has a tenant to show it.
func (w *world) allStarted() bool {
	for uid := range w.promised {
		if !w.runs(uid) {
			return false
		}
	}
	return true
}

func sameRefusals(a, b *Account) bool {
	return slices.Equal(slices.Sorted(maps.Keys(a.refused)), slices.Sorted(maps.Keys(b.refused)))
}
