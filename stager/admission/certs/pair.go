package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"
)

// Durations of certificates.
const (
	Life       = 90 * 24 * time.Hour
	renewAge   = Life * 2 / 3
	backdate   = time.Hour // tolerates clocks that are behind
	settleTime = time.Hour // until every API server and replica has a new CA
)

// pair is a certificate and its key, both PEM.
type pair struct{ cert, key []byte }

// issue returns a certificate for names, and the CA that signed it.
func issue(names []string, now time.Time) (p pair, authority []byte, err error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "stager webhook authority " + now.UTC().Format(time.RFC3339)},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(Life),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: names,
	}
	caText, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return pair{}, nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "stager webhook"}, DNSNames: names,
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	text, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return pair{}, nil, err
	}
	keyText, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, nil, err
	}
	return pair{block("CERTIFICATE", text), block("PRIVATE KEY", keyText)}, block("CERTIFICATE", caText), nil
}

func serial() *big.Int {
	n, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	return n
}

func block(kind string, text []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: text})
}

// open returns the pair for TLS. It reports false unless the pair is valid now, for all names, to
// clients that trust bundle.
func (p pair) open(bundle []byte, names []string, now time.Time) (*tls.Certificate, bool) {
	c, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, false
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	for _, name := range names {
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name, CurrentTime: now}); err != nil {
			return nil, false
		}
	}
	return &c, true
}

// alive returns the bundle without expired and invalid certificates.
func alive(bundle []byte, now time.Time) []byte {
	var out bytes.Buffer
	for {
		var b *pem.Block
		if b, bundle = pem.Decode(bundle); b == nil {
			return out.Bytes()
		}
		if c, err := x509.ParseCertificate(b.Bytes); err == nil && now.Before(c.NotAfter) {
			out.Write(block("CERTIFICATE", b.Bytes))
		}
	}
}
