package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// left lists every object of every kind that carries the release's labels or a name of
// qGPU's, as kind/name.
func (s *site) left(t *testing.T) []string {
	t.Helper()
	kinds, err := s.admin.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, group := range kinds {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") || kind.Kind == "Event" {
				continue
			}
			list, err := s.objects.Resource(gv.WithResource(kind.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("list %s: %v", kind.Name, err)
			}
			for _, o := range list.Items {
				if strings.Contains(o.GetName(), "qgpu") || o.GetLabels()["app.kubernetes.io/name"] == "qgpu" {
					found = append(found, kind.Kind+"/"+o.GetName())
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

func TestUpgradeAndUninstallLeaveNothing(t *testing.T) {
	s := shared
	s.install(t, "--set", "resourceNames.nano=true,placement.card=spread")
	if found := s.left(t); len(found) < 25 {
		t.Fatalf("installed: only %v", found)
	}
	s.install(t, "--set", "policies.templates=false,runtime.class=qgpu-other")
	found := strings.Join(s.left(t), " ")
	for _, gone := range []string{"ValidatingAdmissionPolicy/qgpu-templates", "RuntimeClass/qgpu "} {
		if strings.Contains(found, gone) {
			t.Errorf("after the upgrade %s is still there", gone)
		}
	}
	if !strings.Contains(found, "RuntimeClass/qgpu-other") {
		t.Error("after the upgrade the new RuntimeClass is missing")
	}
	s.uninstall(t)
}

// uninstall removes the release and wants nothing to be left of it.
func (s *site) uninstall(t *testing.T) {
	t.Helper()
	if _, err := s.runHelm(t, "uninstall", release, "--namespace", namespace, "--wait"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // what controllers made goes after its owner
		if found := s.left(t); len(found) > 0 {
			return fmt.Errorf("after uninstall there are still %v", found)
		}
		return nil
	})
}
