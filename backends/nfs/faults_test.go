package nfs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

// wire is a proxy between client and server that can stall or cut connections.
type wire struct {
	listener net.Listener
	target   string

	mu    sync.Mutex // guards the fields below
	conns []net.Conn
	hold  chan struct{} // not nil: data waits until it is closed
}

func newWire(t *testing.T, target string, wrap func(net.Listener) net.Listener) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if wrap != nil {
		l = wrap(l)
	}
	w := &wire{listener: l, target: target}
	t.Cleanup(func() { l.Close(); w.release(); w.cut() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, in, out)
			w.mu.Unlock()
			go w.pass(in, out)
			go w.pass(out, in)
		}
	}()
	return w
}

func (w *wire) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		hold := w.hold
		w.mu.Unlock()
		if hold != nil {
			<-hold
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (w *wire) stall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = make(chan struct{})
}

func (w *wire) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold != nil {
		close(w.hold)
		w.hold = nil
	}
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// openWired opens a directory through a wire.
func openWired(t *testing.T, path, params string) (*backends.Store, *wire) {
	t.Helper()
	s := need(t)
	w := newWire(t, s.Env["NFS_SERVER"], nil)
	u := strings.Replace(at(s, path, params), s.Env["NFS_SERVER"], w.listener.Addr().String(), 1)
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), u, backends.Options{RetryFor: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store, w
}

func TestCallsOfASilentServerAreCancelled(t *testing.T) {
	eachVersion(t, func(t *testing.T, params string) {
		store, w := openWired(t, "/data/silent-"+params, params+"&slots=3")
		obj, err := store.Put(t.Context(), "k", conformance.ContentsOf("k", 1000), 1000, backends.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b, prefix := store.Backend()
		w.stall()
		ctx, cancel := context.WithCancel(t.Context())
		var g errgroup.Group
		for range 5 { // more than there are slots
			g.Go(func() error {
				_, err := b.Stat(ctx, prefix+"k")
				if backends.KindOf(err) != backends.Canceled {
					return fmt.Errorf("stat of a silent server: %w", err)
				}
				return nil
			})
		}
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("cancelled calls took %v", took)
		}
		w.release()
		// The parked slots return with their responses and are usable again.
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for range 10 {
			if again, err := b.Stat(ctx, prefix+"k"); err != nil || again.Version != obj.Version {
				t.Fatalf("stat after the silence: %+v, %v", again, err)
			}
		}
	})
}

func TestRequestsLostWithConnectionsRunOnce(t *testing.T) {
	eachVersion(t, func(t *testing.T, params string) {
		store, w := openWired(t, "/data/cut-"+params, params+"&slots=4")
		stop := make(chan struct{})
		var g errgroup.Group
		g.Go(func() error {
			for {
				select {
				case <-stop:
					return nil
				case <-time.After(20 * time.Millisecond):
					w.cut()
				}
			}
		})
		var writers errgroup.Group
		for i := range 4 {
			writers.Go(func() error {
				for j := range 15 {
					key, size := fmt.Sprintf("%d/%d", i, j), int64(1000*j)
					if _, err := store.Put(t.Context(), key, conformance.ContentsOf(key, size), size, backends.CreateOptions{}); err != nil {
						return err
					}
					got, _, err := store.ReadAll(t.Context(), key, 1<<20)
					if err != nil || string(got) != string(conformance.ContentsOf(key, size).Bytes()) {
						return fmt.Errorf("%s is read back with %d bytes: %w", key, len(got), err)
					}
				}
				return nil
			})
		}
		if err := writers.Wait(); err != nil {
			t.Error(err)
		}
		close(stop)
		_ = g.Wait() // it never fails
		n := 0
		for _, err := range store.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 60 {
			t.Errorf("%d objects are listed, want 60", n)
		}
	})
}

func TestTLSFromTheFirstByte(t *testing.T) {
	s := need(t)
	cert, pool := certificate(t)
	w := newWire(t, s.Env["NFS_SERVER"], func(l net.Listener) net.Listener {
		return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	})
	for name, tt := range map[string]struct {
		sni  string
		pool *x509.CertPool
		kind backends.Kind
	}{
		"right":          {"nfs.example.org", pool, 0},
		"wrong name":     {"other.example.org", pool, backends.Permission},
		"not trusted":    {"nfs.example.org", x509.NewCertPool(), backends.Permission},
		"the host's own": {"", pool, backends.Permission},
	} {
		c, err := parse(backends.Target{Host: w.listener.Addr().String(), Params: url.Values{"tls": {"true"}, "sni": {tt.sni}, "vers": {"4.1"}}})
		if err != nil {
			t.Fatal(err)
		}
		c.tls.RootCAs = tt.pool
		s, _, err := connect(t.Context(), c, "data", slog.New(slog.DiscardHandler))
		err = classify("open", "", err)
		if (err == nil) != (tt.kind == 0) || err != nil && backends.KindOf(err) != tt.kind {
			t.Errorf("%s: got %v (%v), want kind %v", name, err, backends.KindOf(err), tt.kind)
		}
		if s != nil {
			if _, err := s.tree.Stat(t.Context(), "data"); err != nil {
				t.Errorf("%s: stat: %v", name, err)
			}
			s.Close()
		}
	}
}

// certificate returns a certificate for nfs.example.org and a pool with its issuer.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"nfs.example.org"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestServerThatNeverResponds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, c) //nolint:errcheck // it reads until the client closes
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = backends.NewRegistry(Scheme()).Open(ctx, "nfs://"+l.Addr().String()+"/x", backends.Options{})
	if backends.KindOf(err) != backends.Canceled {
		t.Errorf("open of a server that answers nothing: %v (%v), want canceled", err, backends.KindOf(err))
	}
}
