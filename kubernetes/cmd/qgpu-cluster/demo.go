package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/qgpu-project/qgpu/internal/podshare"
	"github.com/qgpu-project/qgpu/kubernetes/cluster"
)

//go:embed try.yaml
var manifests []byte

const (
	namespace = metav1.NamespaceDefault
	patience  = 2 * time.Minute
)

// show lets two pods share a card and a third wait for room, and prints what they see.
func show(ctx context.Context, c *cluster.Cluster, out io.Writer) error {
	d := demo{c, out}
	d.say("Two pods on node turing, which has two T4s: half asks for 50 %% and 7 GiB, quarter for 25 %% and 3 GiB.")
	for document := range bytes.SplitSeq(manifests, []byte("\n---\n")) {
		var pod corev1.Pod
		if err := yaml.UnmarshalStrict(document, &pod); err != nil {
			return err
		}
		if err := d.create(ctx, &pod); err != nil {
			return err
		}
	}
	for _, name := range []string{"half", "quarter"} {
		if err := d.await(ctx, name, running); err != nil {
			return err
		}
	}
	for _, step := range []struct{ says, pod, command string }{
		{"The real nvidia-smi sees the share as the card:", "half", "nvidia-smi"},
		{"", "quarter", "nvidia-smi"},
		{"A program that takes memory until CUDA says out of memory stops at the quota:", "quarter", "cudaload fill"},
	} {
		if err := d.exec(ctx, step.says, step.pod, step.command); err != nil {
			return err
		}
	}
	if err := d.usage(ctx); err != nil {
		return err
	}
	return d.wait(ctx)
}

type demo struct {
	*cluster.Cluster
	out io.Writer
}

func (d demo) say(format string, args ...any) { fmt.Fprintf(d.out, "\n# "+format+"\n", args...) }

func (d demo) create(ctx context.Context, pod *corev1.Pod) error {
	_, err := d.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

func (d demo) exec(ctx context.Context, says, pod, command string) error {
	if says != "" {
		d.say("%s", says)
	}
	fmt.Fprintf(d.out, "$ kubectl exec %s -- %s\n", pod, command)
	output, err := d.Exec(ctx, namespace, pod, "cuda", strings.Fields(command)...)
	fmt.Fprint(d.out, output)
	return err
}

// usage shows how the node's cards were divided.
func (d demo) usage(ctx context.Context) error {
	d.say("Both keep the card busy. The node's policy is fixed-share. What each had of the card's compute, as the card counts it:")
	output, err := d.Nodes[0].Run(ctx, "qgpu-sim", "usage")
	if err != nil {
		return err
	}
	var cards []struct {
		Card      int
		Processes map[string]struct{ Part float64 }
	}
	if err := json.Unmarshal([]byte(output), &cards); err != nil {
		return fmt.Errorf("read the cards' usage: %w", err)
	}
	for _, card := range cards {
		for _, process := range card.Processes {
			fmt.Fprintf(d.out, "card %d: %.1f %%\n", card.Card, 100*process.Part)
		}
	}
	return nil
}

// wait shows a pod that waits until there is room.
func (d demo) wait(ctx context.Context) error {
	d.say("large asks for both of the cards as a whole. One is shared: it waits, and says why.")
	large := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "large"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: d.Nodes[0].Name},
			Containers: []corev1.Container{{
				Name: "cuda", Image: cluster.CUDAImage, Command: []string{"cudaload", "loop"},
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{podshare.Core: resource.MustParse("200")}},
			}},
		},
	}
	if err := d.create(ctx, large); err != nil {
		return err
	}
	if err := d.await(ctx, "large", func(pod *corev1.Pod) bool {
		reason := waits(pod)
		if reason != "" {
			fmt.Fprintln(d.out, reason)
		}
		return reason != ""
	}); err != nil {
		return err
	}
	d.say("The two end, and large starts:")
	now := int64(0)
	for _, name := range []string{"half", "quarter"} {
		if err := d.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			return err
		}
	}
	if err := d.await(ctx, "large", running); err != nil {
		return err
	}
	return d.exec(ctx, "", "large", "nvidia-smi -L")
}

// await waits until pod is as condition says.
func (d demo) await(ctx context.Context, name string, condition func(*corev1.Pod) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		pod, err := d.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && condition(pod) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pod %s is not as it should be: %w", name, errors.Join(err, ctx.Err()))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func running(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// waits is why pod has no node, or empty.
func waits(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Reason == corev1.PodReasonUnschedulable {
			return condition.Message
		}
	}
	return ""
}
