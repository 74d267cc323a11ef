package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiserver/pkg/util/compatibility"
	cliflag "k8s.io/component-base/cli/flag"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controllersoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// parse applies args to a component's flags.
func parse(sets cliflag.NamedFlagSets, args ...string) error {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return all.Parse(args)
}

// startEtcd returns the endpoint for clients.
func (c *ControlPlane) startEtcd(ctx context.Context) (endpoint string, err error) {
	loopback := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config := embed.NewConfig()
	config.Dir = filepath.Join(c.cfg.Dir, "etcd")
	config.LogLevel = "error"
	config.UnsafeNoFsync = true
	config.ListenClientUrls = []url.URL{loopback}
	config.ListenPeerUrls = []url.URL{loopback}
	if c.etcd, err = embed.StartEtcd(config); err != nil {
		return "", fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-c.etcd.Server.ReadyNotify():
		return "http://" + c.etcd.Clients[0].Addr().String(), nil
	case err := <-c.etcd.Err():
		return "", fmt.Errorf("start etcd: %w", err)
	case <-ctx.Done():
		return "", fmt.Errorf("start etcd: %w", ctx.Err())
	}
}

func (c *ControlPlane) startAPIServer(ctx context.Context, listener net.Listener, advertise net.IP, etcd string) error {
	options := apiserveroptions.NewServerRunOptions()
	err := parse(options.Flags(),
		"--etcd-servers="+etcd,
		"--advertise-address="+advertise.String(),
		"--endpoint-reconciler-type=none", // there is one API server, at its Service's address
		"--service-cluster-ip-range="+ServiceRange,
		"--tls-cert-file="+c.pki.path("apiserver.crt"),
		"--tls-private-key-file="+c.pki.path("apiserver.key"),
		"--client-ca-file="+c.pki.path("ca.crt"),
		// Nobody has such a name; components look for the setting.
		"--requestheader-client-ca-file="+c.pki.path("ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--kubelet-client-certificate="+c.pki.path("kubelet-client.crt"),
		"--kubelet-client-key="+c.pki.path("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP", // nodes' names are in no DNS
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.pki.path("serviceaccount.key"),
		"--service-account-signing-key-file="+c.pki.path("serviceaccount.key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",
	)
	if err != nil {
		return err
	}
	options.SecureServing.Listener = listener
	options.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	if err := compatibility.DefaultComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	completed, err := options.Complete(ctx)
	if err != nil {
		return err
	}
	for _, err := range completed.Validate() {
		return err
	}
	c.run("kube-apiserver", func() error { return apiserver.Run(ctx, completed) })
	return nil
}

func (c *ControlPlane) startControllerManager(ctx context.Context) error {
	kubeconfig, err := c.componentKubeconfig("kube-controller-manager")
	if err != nil {
		return err
	}
	options, err := controllersoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	known, disabled, aliases := controllers.KnownControllers(), controllers.ControllersDisabledByDefault(), controllers.ControllerAliases()
	flags := options.Flags(known, disabled, aliases)
	options.ParsedFlags = &flags
	chosen := c.cfg.Controllers
	if len(chosen) == 0 {
		chosen = []string{"*"}
	}
	err = parse(flags,
		"--kubeconfig="+kubeconfig,
		"--controllers="+strings.Join(chosen, ","),
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--use-service-account-credentials=false", // one client starts faster than forty
		"--service-account-private-key-file="+c.pki.path("serviceaccount.key"),
		"--root-ca-file="+c.pki.path("ca.crt"),
		"--leader-elect=false",
		"--secure-port=0",
	)
	if err != nil {
		return err
	}
	config, err := options.Config(ctx, known, disabled, aliases)
	if err != nil {
		return err
	}
	c.run("kube-controller-manager", func() error { return controllers.Run(ctx, config.Complete()) })
	return nil
}

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: %q
  qps: 500
  burst: 1000
`

func (c *ControlPlane) startScheduler(ctx context.Context) error {
	kubeconfig, err := c.componentKubeconfig("kube-scheduler")
	if err != nil {
		return err
	}
	path := filepath.Join(c.cfg.Dir, "kube-scheduler.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, schedulerConfig, kubeconfig), 0o600); err != nil {
		return err
	}
	options := scheduleroptions.NewOptions()
	if err := parse(*options.Flags, "--config="+path, "--secure-port=0"); err != nil {
		return err
	}
	completed, scheduling, err := scheduler.Setup(ctx, options)
	if err != nil {
		return err
	}
	c.run("kube-scheduler", func() error { return scheduler.Run(ctx, completed, scheduling) })
	return nil
}

// componentKubeconfig writes the kubeconfig of the system user of that name.
func (c *ControlPlane) componentKubeconfig(name string) (path string, err error) {
	path = filepath.Join(c.cfg.Dir, name+".kubeconfig")
	// The controllers work as themselves in a real cluster, with a role each. In one
	// process and for tests of other things, their manager may do everything.
	groups := []string{}
	if name == "kube-controller-manager" {
		groups = append(groups, "system:masters")
	}
	return path, c.Kubeconfig(path, "", "system:"+name, groups...)
}
