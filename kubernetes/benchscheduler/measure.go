package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/qgpu-project/qgpu/internal/podshare"
)

// kind is what a round's pods ask for, and at the same time the label by which they are
// found.
type kind string

const (
	plainKind  kind = "plain"
	sharedKind kind = "shared"
)

const kindLabel = "kind"

// profiles are the scheduler profiles of each kind.
var profiles = map[kind]string{plainKind: "plain-scheduler", sharedKind: "qgpu-scheduler"}

// config has both profiles: that of Kubernetes, and that of qGPU's chart.
const config = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 5000, burst: 10000}
profiles:
  - schedulerName: plain-scheduler
  - schedulerName: qgpu-scheduler
    percentageOfNodesToScore: 100
    plugins:
      multiPoint: {enabled: [{name: QGPU, weight: 100}]}
      filter: {enabled: [{name: QGPU}]}
      bind: {enabled: [{name: QGPU}]}
      score: {disabled: [{name: NodeResourcesFit}, {name: NodeResourcesBalancedAllocation}]}
    pluginConfig:
      - {name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: []}}
      - {name: QGPU, args: {nodePlacement: %[2]s, cardPlacement: %[2]s}}
`

func (s *site) configPath() string { return filepath.Join(s.dir, "scheduler.yaml") }

func (s *site) writeConfig(placement string) error {
	kubeconfig := filepath.Join(s.dir, "kubeconfig")
	if err := s.plane.Kubeconfig(kubeconfig, "", "kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	return os.WriteFile(s.configPath(), fmt.Appendf(nil, config, kubeconfig, placement), 0o600)
}

// compare runs rounds of both kinds by turns, and returns the pods a second of each.
func (s *site) compare(ctx context.Context, program string, pods, rounds int, verbose bool) (map[kind][]float64, error) {
	rates := make(map[kind][]float64)
	for range rounds {
		for _, k := range []kind{plainKind, sharedKind} {
			rate, err := s.round(ctx, program, k, pods, verbose)
			if err != nil {
				return nil, fmt.Errorf("%s pods: %w", k, err)
			}
			rates[k] = append(rates[k], rate)
		}
	}
	return rates, nil
}

// patience is how long a round may take.
const patience = 10 * time.Minute

// round makes pods, lets the scheduler bind them, and takes them away.
func (s *site) round(ctx context.Context, program string, k kind, n int, verbose bool) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods := s.client.CoreV1().Pods(metav1.NamespaceDefault)
	if err := each(n, func(i int) error {
		_, err := pods.Create(ctx, podObject(k, i), metav1.CreateOptions{})
		return err
	}); err != nil {
		return 0, err
	}
	selected := metav1.ListOptions{LabelSelector: kindLabel + "=" + string(k)}
	defer func() {
		now := int64(0)
		err = errors.Join(err, pods.DeleteCollection(context.WithoutCancel(ctx), metav1.DeleteOptions{GracePeriodSeconds: &now}, selected))
	}()
	w, err := pods.Watch(ctx, selected)
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	end, err := s.startScheduler(ctx, program, verbose)
	if err != nil {
		return 0, err
	}
	rate, err = measure(ctx, w, n)
	if err == nil && k == sharedKind {
		err = s.verify(ctx)
	}
	return rate, errors.Join(err, end())
}

// measure returns how many of n pods were bound a second, from the first to the last.
func measure(ctx context.Context, w watch.Interface, n int) (float64, error) {
	bound := make(map[string]bool, n)
	var first, last time.Time
	for len(bound) < n {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d pods were bound: %w", len(bound), n, ctx.Err())
		case event, ok := <-w.ResultChan():
			if !ok {
				return 0, fmt.Errorf("the watch ended after %d of %d pods", len(bound), n)
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || pod.Spec.NodeName == "" || bound[pod.Name] {
				continue
			}
			bound[pod.Name], last = true, time.Now()
			if first.IsZero() {
				first = last
			}
		}
	}
	return float64(n-1) / last.Sub(first).Seconds(), nil
}

// startScheduler runs the program until end is called.
func (s *site) startScheduler(ctx context.Context, program string, verbose bool) (end func() error, err error) {
	cmd := exec.CommandContext(ctx, program, "--config="+s.configPath(), "--secure-port=0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	log, err := os.Create(filepath.Join(s.dir, "scheduler.log"))
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if verbose {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return func() error {
		defer log.Close()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("the scheduler has ended by itself: %w", err)
		}
		_ = cmd.Wait() // a scheduler that is told to stop says that it was
		return nil
	}, nil
}

// asks are the containers of a few workloads: core and memory of each.
var asks = [][][2]int64{
	{{30, 20}}, {{50, 40}}, {{10, 5}, {20, 10}}, {{100, 0}}, {{5, 2}, {5, 2}, {10, 4}}, {{160, 60}},
}

// podObject is a pod of a kind. Both kinds have as many containers, and the same CPU.
func podObject(k kind, i int) *corev1.Pod {
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", k, i), Labels: map[string]string{kindLabel: string(k)}},
		Spec: corev1.PodSpec{
			SchedulerName:                profiles[k],
			AutomountServiceAccountToken: &no,
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // no controller says that nodes are ready
		},
	}
	for j, ask := range asks[i%len(asks)] {
		c := corev1.Container{Name: fmt.Sprint("c", j), Image: "pause"}
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
		c.Resources.Limits = corev1.ResourceList{}
		amounts := map[corev1.ResourceName]int64{podshare.Core: ask[0], podshare.Memory: ask[1]}
		if k == plainKind {
			amounts = map[corev1.ResourceName]int64{plainResource: 1}
		}
		for name, amount := range amounts {
			if amount > 0 {
				c.Resources.Limits[name] = *resource.NewQuantity(amount, resource.DecimalSI)
			}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}
