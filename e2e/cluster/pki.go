package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority vouches for the parts of one cluster, for a day.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes one, with its certificate in ca.crt.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key}
	a.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: "cluster for tests"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	return a, a.sign("ca", a.cert, key)
}

// issue makes NAME.crt and NAME.key for somebody whom the API server knows as user and
// member of group.
func (a *authority) issue(name, user, group string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c := &x509.Certificate{
		Subject:     pkix.Name{CommonName: user},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(nodeIP), net.ParseIP(apiServerIP)},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
	}
	if group != "" {
		c.Subject.Organization = []string{group}
	}
	return a.sign(name, c, key)
}

func (a *authority) sign(name string, c *x509.Certificate, key *ecdsa.PrivateKey) (err error) {
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return err
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	c.NotAfter = time.Now().Add(24 * time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		a.write(name+".crt", "CERTIFICATE", der),
		a.write(name+".key", "EC PRIVATE KEY", private))
}

func (a *authority) write(file, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// kubeconfig writes NAME.kubeconfig, by which the owner of a certificate finds the API
// server, and returns its path.
func (a *authority) kubeconfig(name string) (string, error) {
	file := filepath.Join(a.dir, name+".kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test, namespace: default}}]
clusters: [{name: test, cluster: {server: "https://127.0.0.1:6443", certificate-authority: %[1]s/ca.crt}}]
users: [{name: test, user: {client-certificate: %[1]s/%[2]s.crt, client-key: %[1]s/%[2]s.key}}]
`, a.dir, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}
