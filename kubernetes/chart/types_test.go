package chart

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubernetes finds no fault in the types of any expression, for any kind that it is for.
func TestExpressionsTypeCheck(t *testing.T) {
	s := shared
	s.install(t, "--set", "resourceNames.nano=true")
	eventually(t, func() error {
		list, err := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=qgpu"})
		if err != nil {
			return err
		}
		if len(list.Items) < 6 {
			return fmt.Errorf("there are %d policies", len(list.Items))
		}
		for _, p := range list.Items {
			if p.Status.ObservedGeneration != p.Generation || p.Status.TypeChecking == nil {
				return fmt.Errorf("policy %s is not checked yet", p.Name)
			}
		}
		for _, p := range list.Items {
			for _, w := range p.Status.TypeChecking.ExpressionWarnings {
				t.Errorf("policy %s, %s: %s", p.Name, w.FieldRef, w.Warning)
			}
		}
		return nil
	})
}
