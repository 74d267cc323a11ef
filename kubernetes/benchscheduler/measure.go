package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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
clientConnection: {kubeconfig: %[1]q, qps: 5000, burst: 10000}
profiles:
  - schedulerName: plain-scheduler
  - schedulerName: qgpu-scheduler
    percentageOfNodesToScore: %[3]d
    plugins:
      multiPoint: {enabled: [{name: QGPU, weight: 100}, {name: QGPUHost}]}
      filter: {enabled: [{name: QGPU}]}
      postFilter: {enabled: [{name: QGPU}]}
      bind: {enabled: [{name: QGPU}]}
      score: {disabled: [{name: NodeResourcesFit}, {name: NodeResourcesBalancedAllocation}]}
    pluginConfig:
      - {name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: []}}
      - {name: QGPU, args: {nodePlacement: %[2]s, cardPlacement: %[2]s}}
`

func (s *site) configPath() string { return filepath.Join(s.dir, "scheduler.yaml") }

func (s *site) writeConfig(placement string, percentage int) error {
	kubeconfig := filepath.Join(s.dir, "kubeconfig")
	if err := s.plane.Kubeconfig(kubeconfig, "", "kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	return os.WriteFile(s.configPath(), fmt.Appendf(nil, config, kubeconfig, placement, percentage), 0o600)
}

// result is what a round showed.
type result struct {
	rate float64       // pods a second, from the first that was bound to the last
	cpu  time.Duration // that the scheduler used for each of them
}

// compare runs rounds of both kinds by turns.
func (s *site) compare(ctx context.Context, program string, pods, rounds int, verbose bool) (map[kind][]result, error) {
	results := make(map[kind][]result)
	for range rounds {
		for _, k := range []kind{plainKind, sharedKind} {
			r, err := s.round(ctx, program, k, pods, verbose)
			if err != nil {
				return nil, fmt.Errorf("%s pods: %w", k, err)
			}
			results[k] = append(results[k], r)
		}
	}
	return results, nil
}

// patience is how long a round may take.
const patience = 10 * time.Minute

// round makes pods, lets the scheduler bind them, and takes them away.
func (s *site) round(ctx context.Context, program string, k kind, n int, verbose bool) (r result, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods := s.client.CoreV1().Pods(metav1.NamespaceDefault)
	if err := each(n, func(i int) error {
		_, err := pods.Create(ctx, podObject(k, i), metav1.CreateOptions{})
		return err
	}); err != nil {
		return result{}, err
	}
	selected := metav1.ListOptions{LabelSelector: kindLabel + "=" + string(k)}
	defer func() {
		now := int64(0)
		err = errors.Join(err, pods.DeleteCollection(context.WithoutCancel(ctx), metav1.DeleteOptions{GracePeriodSeconds: &now}, selected))
	}()
	w, err := pods.Watch(ctx, selected)
	if err != nil {
		return result{}, err
	}
	defer w.Stop()
	scheduler, end, err := s.startScheduler(ctx, program, verbose)
	if err != nil {
		return result{}, err
	}
	r, err = measure(ctx, w, n, scheduler)
	if err == nil && k == sharedKind {
		err = s.verify(ctx)
	}
	return r, errors.Join(err, end())
}

// measure watches n pods being bound by the scheduler.
func measure(ctx context.Context, w watch.Interface, n int, scheduler *os.Process) (result, error) {
	bound := make(map[string]bool, n)
	var first time.Time
	var before time.Duration
	for {
		select {
		case <-ctx.Done():
			return result{}, fmt.Errorf("%d of %d pods were bound: %w", len(bound), n, ctx.Err())
		case event, ok := <-w.ResultChan():
			if !ok {
				return result{}, fmt.Errorf("the watch ended after %d of %d pods", len(bound), n)
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || pod.Spec.NodeName == "" || bound[pod.Name] {
				continue
			}
			bound[pod.Name] = true
			now := time.Now()
			cpu, err := cpuTime(scheduler)
			switch {
			case err != nil:
				return result{}, err
			case len(bound) == 1:
				first, before = now, cpu
			case len(bound) == n:
				return result{rate: float64(n-1) / now.Sub(first).Seconds(), cpu: (cpu - before) / time.Duration(n-1)}, nil
			}
		}
	}
}

// cpuTime is what a process has used, in ticks of 10 ms.
func cpuTime(p *os.Process) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
	if err != nil {
		return 0, fmt.Errorf("the scheduler has ended by itself: %w", err)
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the name may have spaces
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0, fmt.Errorf("the scheduler's statistics are cut off: %q", stat)
	}
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime: proc_pid_stat(5)
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the scheduler's statistics: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// startScheduler runs the program until end is called.
func (s *site) startScheduler(ctx context.Context, program string, verbose bool) (process *os.Process, end func() error, err error) {
	cmd := exec.CommandContext(ctx, program, "--config="+s.configPath(), "--secure-port=0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	log, err := os.Create(filepath.Join(s.dir, "scheduler.log"))
	if err != nil {
		return nil, nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if verbose {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	return cmd.Process, func() error {
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
