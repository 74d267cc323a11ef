package chart

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Each example is created as it stands, and a pod of it gets scheduler and RuntimeClass.
func TestExamples(t *testing.T) {
	s := shared
	s.install(t, "--set", "resourceNames.nano=true")
	s.ready(t)
	eventually(t, func() error {
		if _, err := s.try(t, pod("elastic=33 elasticMiB=500")); err == nil {
			return errNotYet
		}
		return nil
	})
	resources := map[string]schema.GroupVersionResource{
		"Pod":         {Version: "v1", Resource: "pods"},
		"Deployment":  {Group: "apps", Version: "v1", Resource: "deployments"},
		"StatefulSet": {Group: "apps", Version: "v1", Resource: "statefulsets"},
		"Job":         {Group: "batch", Version: "v1", Resource: "jobs"},
	}
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict(text, &u.Object); err != nil {
				t.Fatal(err)
			}
			made, err := s.objects.Resource(resources[u.GetKind()]).Namespace("default").Create(t.Context(), u,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Fatal(err)
			}
			if made.GetKind() != "Pod" {
				return
			}
			scheduler, _, _ := unstructured.NestedString(made.Object, "spec", "schedulerName")
			class, _, _ := unstructured.NestedString(made.Object, "spec", "runtimeClassName")
			if scheduler != "qgpu-scheduler" || class != "qgpu" {
				t.Errorf("scheduler %q, RuntimeClass %q", scheduler, class)
			}
		})
	}
}
