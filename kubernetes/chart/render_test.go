package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// manifests is what `kubectl apply` takes in helm's stead.
const manifests = "../../deploy/qgpu.yaml"

var variants = map[string][]string{
	"default":   nil,
	"simulated": {"--set", "driver=simulated,placement.node=spread,placement.card=binpack,scheduler.replicas=1"},
	"nano":      {"--set", "resourceNames.nano=true,policies.templates=false"},
	"foreign": {"--namespace", "gpu", "--set", "runtime.class=shared-gpu,runtime.configure=false,runtime.installDir=/usr/local/qgpu,scheduler.name=gpus,images.registry=registry.local,images.tag=v9,images.pullSecrets={pull},agent.runtimeClass=nvidia",
		"--set-json", `agent.nodeSelector={"pool":"gpu"}`},
}

func (s *site) template(t *testing.T, values ...string) string {
	t.Helper()
	args := []string{"template", release, chartDir, "--namespace", namespace, "--kube-version", "v1.37.2"}
	out, err := s.runHelm(t, append(args, values...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestGolden(t *testing.T) {
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			golden(t, filepath.Join("testdata", name+".golden.yaml"), []byte(shared.template(t, values...)))
		})
	}
}

// deploy/qgpu.yaml is the chart with its default values (make manifests).
func TestManifests(t *testing.T) {
	golden(t, manifests, []byte(shared.template(t)))
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the chart renders; see the difference with git diff after `make manifests`", path)
	}
}

// rendered is the chart's objects by kind/name.
func (s *site) rendered(t *testing.T, values ...string) map[string]map[string]any {
	t.Helper()
	objects := map[string]map[string]any{}
	for _, text := range strings.Split(s.template(t, values...), "\n---\n") {
		var o map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if o == nil {
			continue
		}
		u := unstructured.Unstructured{Object: o}
		objects[u.GetKind()+"/"+u.GetName()] = o
	}
	return objects
}

// The API server takes each object of each variant, checked as strictly as it can.
func TestServerSideDryRun(t *testing.T) {
	s := shared
	s.install(t)
	s.uninstall(t)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.admin.Discovery()))
	for name, values := range variants {
		for id, o := range s.rendered(t, values...) {
			u := &unstructured.Unstructured{Object: o}
			if u.GetNamespace() == "gpu" {
				u.SetNamespace(namespace) // which exists
			}
			gvk := u.GroupVersionKind()
			mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			if err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			var resource dynamic.ResourceInterface = s.objects.Resource(mapping.Resource)
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				resource = s.objects.Resource(mapping.Resource).Namespace(u.GetNamespace())
			}
			_, err = resource.Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Errorf("%s of variant %s: %v", id, name, err)
			}
		}
	}
}

func TestValuesAreChecked(t *testing.T) {
	for name, values := range map[string]string{
		"driver":   "driver=nouveau",
		"strategy": "placement.card=tight",
		"unknown":  "placment.card=spread",
		"folder":   "runtime.installDir=opt",
		"replicas": "scheduler.replicas=0",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := shared.runHelm(t, "template", release, chartDir, "--kube-version", "v1.37.2", "--set", values); err == nil || !strings.Contains(err.Error(), "schema") {
				t.Errorf("--set %s = %v, want an error of the schema", values, err)
			}
		})
	}
}

func TestLint(t *testing.T) {
	if out, err := shared.runHelm(t, "lint", "--strict", "--kube-version", "v1.37.2", chartDir); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Nothing of the chart is privileged. The agent may read what other users have, no more.
func TestContainersAreConfined(t *testing.T) {
	for _, id := range []string{"Deployment/qgpu-scheduler", "DaemonSet/qgpu-agent"} {
		o := shared.rendered(t)[id]
		template, _, _ := unstructured.NestedMap(o, "spec", "template", "spec")
		var containers []any
		for _, field := range []string{"initContainers", "containers"} {
			list, _, _ := unstructured.NestedSlice(template, field)
			containers = append(containers, list...)
		}
		if len(containers) == 0 {
			t.Fatalf("%s has no container", id)
		}
		for _, c := range containers {
			context := c.(map[string]any)["securityContext"].(map[string]any)
			drop, _, _ := unstructured.NestedStringSlice(context, "capabilities", "drop")
			add, _, _ := unstructured.NestedStringSlice(context, "capabilities", "add")
			if len(add) > 0 && (id != "DaemonSet/qgpu-agent" || !slices.Equal(add, []string{"DAC_READ_SEARCH"})) {
				t.Errorf("%s has capabilities %v", id, add)
			}
			if context["readOnlyRootFilesystem"] != true || context["allowPrivilegeEscalation"] != false || len(drop) != 1 || drop[0] != "ALL" || context["privileged"] == true {
				t.Errorf("%s: %v", id, context)
			}
		}
	}
}
