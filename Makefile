# qGPU: see `make help`.

export PATH := $(PATH):/usr/local/go/bin
# One set of flags for building, vetting and testing, so that nothing is compiled twice.
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath
GO      ?= go
BIN     := bin
PROGRAMS := qgpu qgpu-runtime qgpu-sim qgpu-placement-sim qgpu-agent cudaload gpu-check
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
FUZZTIME ?= 30s
USERSPACES := .cache/nvidia-userspace/535/VERSION .cache/nvidia-userspace/550/VERSION

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: tools ## Build all programs into bin/
	$(GO) build -o $(BIN)/ $(PROGRAMS:%=./cmd/%)

# Everything in kubernetes/ is built, vetted and tested with the same flags, so that its
# 1,500 packages are compiled once.
KUBE_VERSION := v1.37.2
KUBE_TAGS    := no_btrfs,no_devmapper,no_zfs,no_aufs
KUBE_LDFLAGS := -s -w $(foreach v,gitVersion=$(KUBE_VERSION) gitMajor=1 gitMinor=37 gitTreeState=clean,-X k8s.io/component-base/version.$(v))
# The checks that need nothing but the package itself: the others first read all that Kubernetes is made of.
KUBE_VET     := $(addprefix -,assign atomic bools copylocks errorsas loopclosure nilfunc shift stdmethods structtag unmarshal unreachable unusedresult)
KUBE_GO      := cd kubernetes && GOFLAGS="-buildvcs=false -trimpath -tags=$(KUBE_TAGS)"
KUBE_TOOLS   := k8s.io/kubernetes/cmd/kubelet helm.sh/helm/v3/cmd/helm \
	$(addprefix github.com/containerd/containerd/v2/cmd/,containerd containerd-shim-runc-v2 ctr)

.PHONY: cluster-programs
cluster-programs: build ## Build what a Kubernetes cluster needs into bin/ (10 minutes, once)
	@hack/ensure-tools cluster
	$(KUBE_GO) $(GO) build -ldflags '$(KUBE_LDFLAGS)' -o ../$(BIN)/ ./cmd/... $(KUBE_TOOLS)
	@ln -sf qgpu $(BIN)/kubectl-qgpu

.PHONY: cluster
cluster: cluster-programs nvidia-userspace ## Run a Kubernetes cluster with simulated GPUs until Ctrl-C
	$(BIN)/qgpu-cluster

.PHONY: demo-kubernetes
demo-kubernetes: cluster-programs nvidia-userspace ## Show pods sharing a card
	$(BIN)/qgpu-cluster --demo

.PHONY: e2e
e2e: cluster-programs nvidia-userspace ## Test everything in a Kubernetes cluster (as root)
	$(KUBE_GO) ../hack/go-test -count 1 -vet=off -ldflags "$(KUBE_LDFLAGS)" -timeout 25m ./...

.PHONY: manifests
manifests: ## Write deploy/qgpu.yaml from the chart
	$(KUBE_GO) $(GO) tool helm template qgpu ../deploy/helm/qgpu --namespace kube-system --kube-version $(KUBE_VERSION) >../deploy/qgpu.yaml

.PHONY: bench-scheduler
bench-scheduler: tools ## Measure the scheduler: one pod on 5,000 nodes; pods a second on a real API server
	$(GO) test -run NONE -bench Cycle -benchtime 3000x -benchmem ./internal/scheduler
	$(KUBE_GO) $(GO) build -ldflags '$(KUBE_LDFLAGS)' -o ../$(BIN)/ ./cmd/qgpu-scheduler ./benchscheduler
	$(BIN)/benchscheduler

.PHONY: nvidia-userspace
nvidia-userspace: $(USERSPACES) ## Fetch NVIDIA's user space into .cache/ (not installed)

.cache/nvidia-userspace/%/VERSION:
	hack/nvidia-userspace $*

.cache/docker/VERSION:
	hack/docker-engine

.PHONY: demo
demo: build .cache/nvidia-userspace/535/VERSION ## Show two programs sharing one card
	$(BIN)/qgpu demo

.PHONY: test
test: test-machine ## Run all tests but those in a cluster (as root; elsewhere says what it skips)

.PHONY: test-machine
test-machine: test-tools build nvidia-userspace .cache/docker/VERSION ## Run the tests that need no cluster
	CGO_ENABLED=1 hack/go-test -vet=off -race -timeout 15m ./internal/...
	hack/go-test -vet=off -count 1 -timeout 20m ./e2e/...

.PHONY: fuzz
fuzz: tools ## Fuzz everything that parses a tenant's bytes, FUZZTIME (30s) each
	hack/fuzz $(FUZZTIME)

.PHONY: lint
lint: tools ## Check formatting, vet, staticcheck and known vulnerabilities
	@test -z "$$(gofmt -l cmd internal e2e kubernetes)" || { gofmt -l cmd internal e2e kubernetes; echo "run gofmt -w on these"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	hack/vulncheck $(GOVULNCHECK)

.PHONY: lint-kubernetes
lint-kubernetes: tools ## Vet what is linked with Kubernetes (reads 1,900 packages: minutes)
	$(KUBE_GO) $(GO) vet $(KUBE_VET) ./...

.PHONY: bench
bench: build nvidia-userspace ## Measure what mediation costs; writes docs/performance.md
	$(GO) run ./e2e/bench -bin $(BIN) -o docs/performance.md

.PHONY: bench-share
bench-share: build nvidia-userspace ## Measure shares of compute; writes docs/compute.md and its plot
	$(GO) run ./e2e/benchshare -bin $(BIN) -o docs/compute.md

.PHONY: bench-placement
bench-placement: build ## Compare placement policies on TRACE, the openb trace's folder; writes docs/placement.md
	@test -n "$(TRACE)" || { echo "say TRACE=DIR, the folder of the openb trace"; exit 1; }
	$(BIN)/qgpu-placement-sim report --trace $(TRACE) -o docs/placement.md

.PHONY: isolation
isolation: build nvidia-userspace ## Try every allocation path; writes docs/isolation.md
	QGPU_WRITE_DOCS=1 $(GO) test -count 1 -run TestIsolation ./e2e/...

.PHONY: samples
samples: build nvidia-userspace ## Run NVIDIA's deviceQuery and bandwidthTest (fetches 860 MB)
	hack/cuda-samples
	$(GO) test -count 1 -tags samples -run TestSamples ./e2e/...

.PHONY: clean
clean: ## Remove what was built (not what was fetched)
	rm -rf $(BIN)

.PHONY: tools test-tools
tools:
	@hack/ensure-tools
test-tools:
	@hack/ensure-tools test
