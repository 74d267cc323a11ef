// Package controlplane runs a Kubernetes control plane inside the calling process:
// etcd, kube-apiserver, kube-controller-manager and, where asked for, the default
// kube-scheduler. It owns their keys, certificates and start-up order. It knows
// nothing of nodes, containers or GPUs.
//
// It serves tests and benchmarks: etcd does not sync to disk. Kubernetes' feature
// gates are global to a process, so a process can start one control plane only.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Config says what to run and where.
type Config struct {
	// Dir keeps etcd's data, keys and kubeconfigs. A control plane that is started
	// on the Dir of an earlier one continues it.
	Dir string
	// Listen is the API server's address and port. Empty: a free port of the loopback
	// interface.
	Listen string
	// Advertise is the address at which nodes and pods reach the API server. Nil: that
	// of Listen.
	Advertise net.IP
	// Scheduler also runs kube-scheduler with its default profile.
	Scheduler bool
	// Controllers are those of kube-controller-manager to run, as its flag names them;
	// none: those that run by default.
	Controllers []string
	Log         *slog.Logger
}

// ServiceRange is the range of cluster IPs. The API server's own Service has its
// first address, ServiceAddress.
const ServiceRange = "10.96.0.0/16"

// ServiceAddress is the cluster IP of the Service "kubernetes", at port 443.
var ServiceAddress = net.IPv4(10, 96, 0, 1)

const (
	readyTimeout = 5 * time.Minute // also on a busy machine
	stopTimeout  = 10 * time.Second
)

// ControlPlane is a running control plane.
type ControlPlane struct {
	cfg    Config
	pki    *pki
	url    string
	cancel context.CancelFunc
	etcd   *embed.Etcd
	ended  chan error // one value a component
	parts  int
}

// Start runs a control plane and returns when pods can be created in it. It ends
// with ctx or by Stop.
func Start(ctx context.Context, cfg Config) (*ControlPlane, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &ControlPlane{cfg: cfg, cancel: cancel, ended: make(chan error, 3)}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) error {
	begin := time.Now()
	listen := c.cfg.Listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	address := listener.Addr().(*net.TCPAddr)
	c.url = fmt.Sprintf("https://127.0.0.1:%d", address.Port)
	advertise := c.cfg.Advertise
	if advertise == nil {
		advertise = address.IP
	}
	if c.pki, err = openPKI(filepath.Join(c.cfg.Dir, "pki"), advertise); err != nil {
		return errors.Join(err, listener.Close())
	}
	endpoint, err := c.startEtcd(ctx)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	c.cfg.Log.Debug("etcd is ready", "after", time.Since(begin))
	if err := c.startAPIServer(ctx, listener, advertise, endpoint); err != nil {
		return fmt.Errorf("start kube-apiserver: %w", err)
	}
	if err := c.wait(ctx, "kube-apiserver to be ready", ready); err != nil {
		return err
	}
	c.cfg.Log.Debug("kube-apiserver is ready", "after", time.Since(begin))
	if err := c.startControllerManager(ctx); err != nil {
		return fmt.Errorf("start kube-controller-manager: %w", err)
	}
	if c.cfg.Scheduler {
		if err := c.startScheduler(ctx); err != nil {
			return fmt.Errorf("start kube-scheduler: %w", err)
		}
	}
	if err := c.wait(ctx, "the default service account", defaultServiceAccount); err != nil {
		return err
	}
	c.cfg.Log.Info("the control plane is ready", "url", c.url, "after", time.Since(begin).Round(time.Millisecond))
	return nil
}

func ready(ctx context.Context, client kubernetes.Interface) error {
	return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func defaultServiceAccount(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}

// wait polls until condition holds for what, or a component ends.
func (c *ControlPlane) wait(ctx context.Context, what string, condition func(context.Context, kubernetes.Interface) error) error {
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := condition(ctx, client)
		if err == nil {
			return nil
		}
		select {
		case end := <-c.ended:
			c.parts--
			return fmt.Errorf("waiting for %s: %w", what, end)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, errors.Join(ctx.Err(), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// run keeps a component going until it ends or ctx does.
func (c *ControlPlane) run(name string, component func() error) {
	c.parts++
	go func() {
		err := component()
		c.ended <- fmt.Errorf("%s ended: %w", name, orStopped(err))
	}()
}

var errStopped = errors.New("it was told to stop")

func orStopped(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return errStopped
	}
	return err
}

// Wait returns when ctx is done, with nil, or when a component has ended, with why.
func (c *ControlPlane) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-c.ended:
		c.parts--
		return err
	}
}

// Stop ends all components. A component that does not end in time is reported.
func (c *ControlPlane) Stop() error {
	c.cancel()
	timeout := time.After(stopTimeout)
	var errs []error
	for ; c.parts > 0; c.parts-- {
		select {
		case err := <-c.ended:
			if !errors.Is(err, errStopped) {
				errs = append(errs, err)
			}
		case <-timeout:
			errs = append(errs, fmt.Errorf("%d component(s) did not end within %v", c.parts, stopTimeout))
			c.parts = 1
		}
	}
	if c.etcd != nil {
		c.etcd.Close()
		c.etcd = nil
	}
	return errors.Join(errs...)
}

// URL is the API server's address on this machine.
func (c *ControlPlane) URL() string { return c.url }

// Admin is the configuration of a client that may do everything.
func (c *ControlPlane) Admin() *rest.Config {
	config, err := c.Client("kubernetes-admin", "system:masters")
	if err != nil {
		// The authority has signed the API server's certificate a moment ago.
		panic(fmt.Sprintf("sign the administrator's certificate: %v", err))
	}
	return config
}

// Client is the configuration of a client that is user, a member of groups.
func (c *ControlPlane) Client(user string, groups ...string) (*rest.Config, error) {
	pair, err := c.pki.client(user, groups...)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", user, err)
	}
	return &rest.Config{
		Host:            c.url,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.pki.caPEM, CertData: pair.cert, KeyData: pair.key},
		QPS:             1000, Burst: 2000, // the client's own limits are not what is tested
	}, nil
}

// Authority is the file of the certificate that signs the API server's and its clients'.
func (c *ControlPlane) Authority() string { return c.pki.path("ca.crt") }

// Kubeconfig writes a kubeconfig of user to a file that only its owner reads. server
// is the URL to use; empty: the API server's address on this machine.
func (c *ControlPlane) Kubeconfig(path, server, user string, groups ...string) error {
	config, err := c.Client(user, groups...)
	if err != nil {
		return err
	}
	if server != "" {
		config.Host = server
	}
	text, err := kubeconfig(config, user)
	if err != nil {
		return fmt.Errorf("encode the kubeconfig of %s: %w", user, err)
	}
	return os.WriteFile(path, text, 0o600)
}
