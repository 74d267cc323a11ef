package e2e

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/qgpu-project/qgpu/internal/inventory"
	"github.com/qgpu-project/qgpu/kubernetes/cluster"
	"github.com/qgpu-project/qgpu/kubernetes/sandbox"
)

// patience is far longer than anything takes, also on a busy machine.
const patience = 5 * time.Minute

// site is the cluster that all tests share.
type site struct {
	*cluster.Cluster
	inventories *inventory.Client
	observer    *observer
}

var shared *site

// chartValues are what the tests need beyond the chart's defaults.
var chartValues = []string{"resourceNames.nano=true"}

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		os.Exit(m.Run())
	}
	options := sandbox.Options{Keep: os.Getenv("QGPU_KEEP") != ""}
	os.Exit(sandbox.Main(options, func(s *sandbox.Sandbox) int {
		code, err := run(m, s)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}))
}

func run(m *testing.M, s *sandbox.Sandbox) (code int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	root, err := filepath.Abs("../..")
	if err != nil {
		return 0, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := cluster.Start(ctx, s, cluster.Default(root, log))
	if err != nil {
		return 0, err
	}
	defer c.Stop()
	if err := c.Install(ctx, chartValues...); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, describe(ctx, c))
	}
	shared = &site{Cluster: c}
	objects, err := dynamic.NewForConfig(c.Admin)
	if err != nil {
		return 0, err
	}
	shared.inventories = inventory.NewClient(objects)
	if err := shared.waitForCards(ctx); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, describe(ctx, c))
	}
	if shared.observer, err = observe(ctx, shared); err != nil {
		return 0, err
	}
	code = m.Run()
	if violations := shared.observer.stop(); len(violations) > 0 {
		for _, violation := range violations {
			fmt.Println("observer:", violation)
		}
		code = 1
	}
	if code != 0 {
		fmt.Println(describe(ctx, c))
	}
	return code, nil
}
