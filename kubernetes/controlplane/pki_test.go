package controlplane

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"slices"
	"testing"
)

// What was signed before a restart is good after it, and the API server can be reached
// where it is then.
func TestPKIContinues(t *testing.T) {
	dir := t.TempDir()
	before, err := openPKI(dir, net.IPv4(10, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	client, err := before.client("system:node:a", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(before.path("serviceaccount.key"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := openPKI(dir, net.IPv4(10, 0, 0, 2))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(after.path("serviceaccount.key")); err != nil || !bytes.Equal(key, again) {
		t.Errorf("the key of service accounts is another one: %v", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(after.ca)

	pair, err := tls.X509KeyPair(client.cert, client.key)
	if err != nil {
		t.Fatal(err)
	}
	user, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := user.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("the earlier client is no longer trusted: %v", err)
	}
	if user.Subject.CommonName != "system:node:a" || !slices.Equal(user.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("the client is %v", user.Subject)
	}

	pair, err = tls.LoadX509KeyPair(after.path("apiserver.crt"), after.path("apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"10.0.0.2", "127.0.0.1", "10.96.0.1", "kubernetes.default.svc"} {
		if _, err := server.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("at %s: %v", host, err)
		}
	}
}
