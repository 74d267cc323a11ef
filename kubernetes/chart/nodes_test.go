package chart

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/qgpu-project/qgpu/internal/inventory"
)

// agentOf is a client with the token of an agent's pod that runs on a node.
func (s *site) agentOf(t *testing.T, node string) *rest.Config {
	t.Helper()
	p := pod("cpu=1", spec(func(s *corev1.PodSpec) { s.NodeName, s.ServiceAccountName = node, "qgpu-agent" }))
	p.Namespace = namespace
	return s.as(t, "qgpu-agent", s.create(t, p, "agent-"+node))
}

func cards(t *testing.T, config *rest.Config) *inventory.Client {
	t.Helper()
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return inventory.NewClient(d)
}

func exampleCards(node *corev1.Node) *inventory.CardInventory {
	return &inventory.CardInventory{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}},
		Driver:     "simulated", DriverVersion: "535.261.03", Agent: "test",
		Cards: []inventory.Card{
			{Index: 0, UUID: "GPU-11111111-2222-3333-4444-555555555555", Model: "Tesla T4", Address: "0000:3B:00.0", MemoryMiB: 15 << 10},
			{Index: 1, UUID: "GPU-11111111-2222-3333-4444-666666666666", Model: "Tesla T4", MemoryMiB: 15 << 10, Unhealthy: "Xid 79"},
		},
	}
}

func TestAgentWritesItsOwnNode(t *testing.T) {
	s := shared
	s.install(t)
	s.ready(t)
	a, b := s.node(t, "node-a"), s.node(t, "node-b")
	agent := s.agentOf(t, "node-a")

	const manager = "qgpu-agent"
	if _, err := cards(t, agent).Apply(t.Context(), exampleCards(a), manager); err != nil {
		t.Fatalf("an agent writes its node's cards: %v", err)
	}
	_, err := cards(t, agent).Apply(t.Context(), exampleCards(b), manager)
	checkRefusal(t, err, "an agent writes the cards of its own node: this one is on node-a, and the cards are those of node-b")
	_, err = cards(t, s.plane.Admin()).Apply(t.Context(), exampleCards(a), "admin")
	checkRefusal(t, err, "written by system:serviceaccount:kube-system:qgpu-agent alone, and this is kubernetes-admin")
	_, err = cards(t, s.as(t, "qgpu-agent", nil)).Apply(t.Context(), exampleCards(a), manager)
	checkRefusal(t, err, "an agent writes the cards of its own node")

	got, err := cards(t, s.plane.Admin()).Get(t.Context(), "node-a")
	if err != nil {
		t.Fatal(err)
	}
	if want := exampleCards(a); !reflect.DeepEqual(got.Cards, want.Cards) {
		t.Errorf("the API server kept %+v, want %+v", got.Cards, want.Cards)
	}

	status := func(node string, status map[string]any, meta ...any) error {
		object := map[string]any{"status": status}
		if len(meta) > 0 {
			object["metadata"] = meta[0]
		}
		patch, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client(t, agent).CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}
	amounts := func(name string) map[string]any {
		return map[string]any{"capacity": map[string]string{name: "200"}, "allocatable": map[string]string{name: "200"}}
	}
	checkRefusal(t, status("node-a", amounts("tke.cloud.tencent.com/qgpu-core")), "")
	checkRefusal(t, status("node-a", amounts("nano-gpu/gpu-percent")), "") // as it takes them away when they are switched off
	checkRefusal(t, status("node-b", amounts("tke.cloud.tencent.com/qgpu-core")), "an agent writes the status of its own node: this one is on node-a, and the status is that of node-b")
	const others = "an agent changes nothing of a node but the amounts of shares"
	checkRefusal(t, status("node-a", amounts("cpu")), others)
	checkRefusal(t, status("node-a", map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}), others)
	checkRefusal(t, status("node-a", map[string]any{}, map[string]any{"labels": map[string]string{"zone": "x"}}), others)
}

// The schema refuses what no agent of this version writes, and has a place for all that
// one does.
func TestInventorySchema(t *testing.T) {
	s := shared
	s.install(t)
	s.ready(t)
	node := s.node(t, "node-a")
	agent := cards(t, s.agentOf(t, "node-a"))
	for name, change := range map[string]func(*inventory.CardInventory){
		"driver": func(c *inventory.CardInventory) { c.Driver = "other" },
		"uuid":   func(c *inventory.CardInventory) { c.Cards[0].UUID = "MIG-1" },
		"memory": func(c *inventory.CardInventory) { c.Cards[0].MemoryMiB = -1 },
		"twice":  func(c *inventory.CardInventory) { c.Cards[1].Index = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			c := exampleCards(node)
			change(c)
			if _, err := agent.Apply(t.Context(), c, "qgpu-agent"); !apierrors.IsInvalid(err) && err == nil {
				t.Errorf("Apply = %v, want it to be invalid", err)
			}
		})
	}
	crd := s.rendered(t)["CustomResourceDefinition/cardinventories.qgpu.io"]
	version := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	schema := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	checkSchema(t, "", schema, reflect.TypeFor[inventory.CardInventory]())
}

// checkSchema wants the properties of schema to be the JSON fields of a type.
func checkSchema(t *testing.T, path string, schema map[string]any, of reflect.Type) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	fields := map[string]bool{}
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "metadata" {
			continue
		}
		fields[name] = true
		property, ok := properties[name].(map[string]any)
		if !ok {
			t.Errorf("the schema has no %s.%s", path, name)
			continue
		}
		kind, inner := field.Type.Kind(), field.Type
		want := map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Int64: "integer", reflect.Slice: "array", reflect.Struct: "object"}[kind]
		if property["type"] != want {
			t.Errorf("%s.%s is of type %v in the schema, want %s", path, name, property["type"], want)
		}
		if kind == reflect.Slice {
			property, inner = property["items"].(map[string]any), inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			checkSchema(t, path+"."+name, property, inner)
		}
	}
	for name := range properties {
		if !fields[name] {
			t.Errorf("the schema has %s.%s, and the type has not", path, name)
		}
	}
}

// A wrong label warns: a kubelet that sets it must not fail.
func TestNodePolicyLabel(t *testing.T) {
	s := shared
	s.install(t)
	s.ready(t)
	s.node(t, "node-a")
	warnings := &warnings{}
	config := s.plane.Admin()
	config.WarningHandler = warnings
	nodes := client(t, config).CoreV1().Nodes()
	for value, want := range map[string]bool{"fs": false, "burst-share": false, "fair": true} {
		warnings.list = nil
		patch := []byte(`{"metadata":{"labels":{"tke.cloud.tencent.com/qgpu-schedule-policy":"` + value + `"}}}`)
		if _, err := nodes.Patch(t.Context(), "node-a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(warnings.list, " "), `policy "`+value+`" is unknown; the policies are`); got != want {
			t.Errorf("policy %s: warnings %q, want any: %v", value, warnings.list, want)
		}
	}
}

type warnings struct{ list []string }

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) { w.list = append(w.list, text) }
