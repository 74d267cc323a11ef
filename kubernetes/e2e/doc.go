// Package e2e tests qGPU in a real Kubernetes cluster: a control plane and two nodes
// with real kubelets, containerd and runc, and with simulated cards, on which pods run
// the real nvidia-smi and CUDA programs. All tests share one cluster.
package e2e
