package placement

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/qgpu-project/qgpu/internal/share"
)

// What a Placer finds is verified and has room; moved, shrunk or left out it is not.
func TestVerifyWhatIsPlaced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := nodeGen(4).Draw(t, "node")
		r := requestGen(4).Draw(t, "request")
		var p Placer
		if len(r.Containers) == 0 || !p.Place(n, r, nil) {
			return
		}
		a := p.Assignment()
		if err := n.Verify(r, a); err != nil {
			t.Fatalf("%+v: %v", a, err)
		}
		if err := n.Room(r, a); err != nil {
			t.Fatalf("no room for what was placed: %v", err)
		}
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(a))).Draw(t, "container")
		forge := func(change func([]Slice) []Slice) Assignment {
			out := maps.Clone(a)
			out[name] = change(slices.Clone(a[name]))
			return out
		}
		for what, forged := range map[string]Assignment{
			"more memory":     forge(func(s []Slice) []Slice { s[0].Memory++; return s }),
			"less core":       forge(func(s []Slice) []Slice { s[0].Core--; return s }),
			"another card":    forge(func(s []Slice) []Slice { s[0].UUID = "GPU-x"; return s }),
			"another index":   forge(func(s []Slice) []Slice { s[0].Index += 7; return s }),
			"another class":   forge(func(s []Slice) []Slice { s[0].Class += "x"; return s }),
			"one card more":   forge(func(s []Slice) []Slice { return append(s, s[0]) }),
			"one card twice":  forge(func(s []Slice) []Slice { return append(s[:len(s)-1], s[0], s[0]) }),
			"no card":         forge(func([]Slice) []Slice { return nil }),
			"someone else's":  func() Assignment { out := maps.Clone(a); out["x"] = a[name]; return out }(),
			"a container not": func() Assignment { out := maps.Clone(a); delete(out, name); return out }(),
		} {
			if n.Verify(r, forged) == nil {
				t.Errorf("%s: %+v is taken for %+v", what, forged, r)
			}
		}
	})
}

func TestVerifyWholeCardsBesideOthers(t *testing.T) {
	n := &Node{Cards: []Card{{Index: 0, UUID: "a", Memory: 8 * share.GiB}}}
	whole, part := share.Share{Core: 100}, share.Share{Core: 10, Memory: share.GiB}
	for _, tc := range []struct {
		stage Stage
		want  string
	}{{App, "beside another"}, {Sidecar, "beside another"}, {Init, ""}} {
		r := &Request{Containers: []Container{{Name: "first", Share: whole, Stage: tc.stage}, {Name: "then", Share: part}}}
		err := n.Verify(r, Assignment{"first": {n.Cards[0].Quota(whole)}, "then": {n.Cards[0].Quota(part)}})
		if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("stage %d: %v", tc.stage, err)
		}
	}
}

func TestRoomSaysWhatIsMissing(t *testing.T) {
	part := share.Share{Core: 60, Memory: 3 * share.GiB}
	r := &Request{Containers: []Container{{Name: "main", Share: part}}}
	for want, card := range map[string]Card{
		"unhealthy: lost":                  {Unhealthy: "lost"},
		"taken as a whole":                 {Whole: true, Tenants: 1},
		"2Gi of 8Gi":                       {Taken: 6 * share.GiB, Tenants: 1},
		"50 % of core and 15 of 16 places": {Core: 50, Tenants: 1},
		"0 of 16 places free":              {Tenants: 16},
	} {
		card.UUID, card.Memory = "a", 8*share.GiB
		n := &Node{Cards: []Card{card}}
		if err := n.Room(r, Assignment{"main": {card.Quota(part)}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	n := &Node{Cards: []Card{{UUID: "a", Memory: 8 * share.GiB, Tenants: 1}}}
	r.Containers[0].Share = share.Share{Core: 100}
	if err := n.Room(r, Assignment{"main": {n.Cards[0].Quota(r.Containers[0].Share)}}); err == nil || !strings.Contains(err.Error(), "asked for as a whole") {
		t.Error(err)
	}
}
