// Package e2e tests the built programs together, as users run them: NVIDIA's own
// nvidia-smi and libcuda under a mediator on simulated cards. It needs root, the
// programs in ../bin and NVIDIA's user space in ../.cache: make test sees to it.
package e2e
