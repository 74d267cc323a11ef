// Package kubecmd is `kubectl qgpu`, also `qgpu kube`: who has which part of which card
// in a cluster, and why a pod waits. It reads objects from the API server and prints
// what internal/clusterview makes of them; it changes nothing.
package kubecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/qgpu-project/qgpu/internal/clusterview"
	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/internal/podshare"
)

// options are what every command shares, by kubectl's names.
type options struct {
	kubeconfig    string
	context       string
	namespace     string
	allNamespaces bool
	handler       string
	output        string
}

// Program is the name under which kubectl finds the program as its plugin.
const Program = "kubectl-qgpu"

// NewPlugin makes the command as kubectl's plugin.
func NewPlugin() *cobra.Command {
	c := New(Program)
	c.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl qgpu"}
	return c
}

// New makes the command under a name.
func New(name string) *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   name,
		Short: "Shares of cards in a Kubernetes cluster",
		Long: `Shows the cards of a cluster, who has which part of them, and why a pod waits.
Linked or copied to kubectl-qgpu on the PATH, this program is "kubectl qgpu".`,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig to use (KUBECONFIG, or ~/.kube/config)")
	flags.StringVar(&o.context, "context", "", "context of the kubeconfig to use")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "namespace of pods (that of the context)")
	flags.StringVar(&o.handler, "runtime-class", "qgpu", "the chart's runtime.class")
	root.AddCommand(o.nodesCommand(), o.podsCommand(), o.explainCommand(), o.topCommand(), o.exportCommand())
	return root
}

func (o *options) outputFlag(c *cobra.Command) {
	c.Flags().StringVarP(&o.output, "output", "o", "table", "table or json")
}

func (o *options) allFlag(c *cobra.Command) {
	c.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "pods of all namespaces")
}

// connect reads the kubeconfig as kubectl does.
func (o *options) connect() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	overrides.Context.Namespace = o.namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	if o.namespace, _, err = loader.Namespace(); err != nil {
		return nil, fmt.Errorf("find the namespace: %w", err)
	}
	config.QPS, config.Burst = -1, 0 // three lists need no limit
	return config, nil
}

// view reads the cluster. Pods of all namespaces count, whichever are shown: they share
// cards.
func (o *options) view(ctx context.Context) (*clusterview.View, error) {
	_, objects, err := o.read(ctx)
	if err != nil {
		return nil, err
	}
	return clusterview.Of(objects), nil
}

func (o *options) read(ctx context.Context) (*rest.Config, clusterview.Objects, error) {
	config, err := o.connect()
	if err != nil {
		return nil, clusterview.Objects{}, err
	}
	objects, err := Read(ctx, config)
	objects.Handler = o.handler
	return config, objects, err
}

// page is how many objects one answer of the API server brings.
const page = 1000

// Read reads all that a view is made of.
func Read(ctx context.Context, config *rest.Config) (clusterview.Objects, error) {
	// Whatever names the chart switched on: a pod with others asks for nothing.
	objects := clusterview.Objects{Reader: podshare.Reader{Nano: true}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return objects, err
	}
	objectClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return objects, err
	}
	err = pages(func(opts metav1.ListOptions) (string, error) {
		list, err := client.CoreV1().Nodes().List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("list nodes: %w", err)
		}
		objects.Nodes = append(objects.Nodes, list.Items...)
		return list.Continue, nil
	})
	if err != nil {
		return objects, err
	}
	err = pages(func(opts metav1.ListOptions) (string, error) {
		list, err := inventory.NewClient(objectClient).List(ctx, opts)
		if apierrors.IsNotFound(err) {
			return "", errors.New("this cluster has no cardinventories.qgpu.io; install the chart (docs/kubernetes.md)")
		}
		if err != nil {
			return "", fmt.Errorf("list card inventories: %w", err)
		}
		objects.Inventories = append(objects.Inventories, list.Items...)
		return list.Continue, nil
	})
	if err != nil {
		return objects, err
	}
	return objects, pages(func(opts metav1.ListOptions) (string, error) {
		list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("list pods: %w", err)
		}
		objects.Pods = append(objects.Pods, list.Items...)
		return list.Continue, nil
	})
}

// pages calls list until it has no further page.
func pages(list func(metav1.ListOptions) (string, error)) error {
	opts := metav1.ListOptions{Limit: page}
	for {
		next, err := list(opts)
		if err != nil || next == "" {
			return err
		}
		opts.Continue = next
	}
}

// events lists what was reported of a pod by qGPU's own parts, oldest first.
func events(ctx context.Context, config *rest.Config, pod *corev1.Pod) ([]string, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	list, err := client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
	if err != nil {
		return nil, fmt.Errorf("list the pod's events: %w", err)
	}
	var said []string
	for _, e := range list.Items {
		source := e.Source.Component + e.ReportingController
		if strings.Contains(source, "qgpu") {
			said = append(said, fmt.Sprintf("%s: %s", e.Reason, e.Message))
		}
	}
	return said, nil
}

// print writes value as the --output flag asks: as JSON, or by table.
func (o *options) print(w io.Writer, value any, table func(io.Writer) error) error {
	switch o.output {
	case "json":
		return writeJSON(w, value)
	case "table":
		return table(w)
	}
	return fmt.Errorf("--output %s: choose table or json", o.output)
}
