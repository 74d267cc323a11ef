// Package chart tests deploy/helm/qgpu: what it renders, that a real API server takes
// it and gives it back without a trace, and what its admission policies let through.
// Helm is the real one, a tool of this module.
package chart
