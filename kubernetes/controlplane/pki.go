package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// pki is a certificate authority with the keys that it signed, in one folder.
type pki struct {
	dir   string
	ca    *x509.Certificate
	key   crypto.Signer
	caPEM []byte
}

// pair is a certificate with its key, in PEM.
type pair struct{ cert, key []byte }

const validity = 365 * 24 * time.Hour

// openPKI makes the authority and the keys of dir, or reads those of an earlier start.
// The API server's certificate is made anew: its addresses may have changed.
func openPKI(dir string, advertise net.IP) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pki{dir: dir}
	if err := p.authority(); err != nil {
		return nil, fmt.Errorf("open the certificate authority in %s: %w", dir, err)
	}
	if err := p.serviceAccountKey(); err != nil {
		return nil, fmt.Errorf("make the key of service accounts: %w", err)
	}
	server, err := p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), ServiceAddress, advertise},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("sign the API server's certificate: %w", err)
	}
	client, err := p.client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return nil, fmt.Errorf("sign the API server's certificate for kubelets: %w", err)
	}
	return p, errors.Join(p.write("apiserver", server), p.write("kubelet-client", client))
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) write(name string, files pair) error {
	return errors.Join(os.WriteFile(p.path(name+".crt"), files.cert, 0o644), os.WriteFile(p.path(name+".key"), files.key, 0o600))
}

func (p *pki) authority() error {
	cert, err := os.ReadFile(p.path("ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return p.newAuthority()
	}
	if err != nil {
		return err
	}
	key, err := os.ReadFile(p.path("ca.key"))
	if err != nil {
		return err
	}
	certBlock, _ := pem.Decode(cert)
	keyBlock, _ := pem.Decode(key)
	if certBlock == nil || keyBlock == nil {
		return errors.New("ca.crt or ca.key is not PEM; remove the folder to begin anew")
	}
	if p.ca, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return err
	}
	p.caPEM = cert
	p.key, err = x509.ParseECPrivateKey(keyBlock.Bytes)
	return err
}

func (p *pki) newAuthority() error {
	key, err := newKey()
	if err != nil {
		return err
	}
	p.key = key
	p.ca = &x509.Certificate{
		Subject:               pkix.Name{CommonName: "qgpu-test-ca"},
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	files, err := p.signKey(p.ca, key)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(files.cert)
	if p.ca, err = x509.ParseCertificate(block.Bytes); err != nil {
		return err
	}
	p.caPEM = files.cert
	return p.write("ca", files)
}

func (p *pki) serviceAccountKey() error {
	if _, err := os.Stat(p.path("serviceaccount.key")); err == nil {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	text, err := keyPEM(key)
	if err != nil {
		return err
	}
	return os.WriteFile(p.path("serviceaccount.key"), text, 0o600)
}

// client signs the certificate of user, a member of groups.
func (p *pki) client(user string, groups ...string) (pair, error) {
	return p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (p *pki) sign(template *x509.Certificate) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	return p.signKey(template, key)
}

func (p *pki) signKey(template *x509.Certificate, key *ecdsa.PrivateKey) (pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return pair{}, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Minute)
	template.NotAfter = template.NotBefore.Add(validity)
	der, err := x509.CreateCertificate(rand.Reader, template, p.ca, key.Public(), p.key)
	if err != nil {
		return pair{}, err
	}
	text, err := keyPEM(key)
	if err != nil {
		return pair{}, err
	}
	return pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), text}, nil
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// kubeconfig is the file of a client of one cluster.
func kubeconfig(config *rest.Config, user string) ([]byte, error) {
	const cluster = "qgpu"
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{cluster: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: cluster,
	})
}
