package agent

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// PodResources is the kubelet's read-only service of that name.
type PodResources struct {
	conn   *grpc.ClientConn
	client podresources.PodResourcesListerClient
}

// maxPods bounds the kubelet's answer, in bytes: hundreds of pods with all their devices.
const maxPods = 16 << 20

// NewPodResources makes a client of the service at socket, which it does not reach yet.
func NewPodResources(socket string) (*PodResources, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxPods)))
	if err != nil {
		return nil, fmt.Errorf("use the kubelet's socket %s: %w", socket, err)
	}
	return &PodResources{conn: conn, client: podresources.NewPodResourcesListerClient(conn)}, nil
}

// Close ends the client.
func (p *PodResources) Close() error { return p.conn.Close() }

// Pods implements Kubelet.
func (p *PodResources) Pods(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	answer, err := p.client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet for its pods: %w", err)
	}
	pods := map[string]int{}
	for _, pod := range answer.GetPodResources() {
		pods[pod.GetNamespace()+"/"+pod.GetName()]++
	}
	return pods, nil
}
