package hdfs

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

// secure returns a cluster as companies run it: two NameNodes, Kerberos and encrypted RPC.
// DataNodes offer both encrypted and plain transfers.
func secure(t *testing.T) *live.Server {
	t.Helper()
	return live.Start(t, "hdfs", "-kerberos", "-ha")
}

// secured opens a directory with a changed environment and short timeouts.
func secured(t *testing.T, url string, changed ...string) (*backends.Store, error) {
	t.Helper()
	s, err := backends.NewRegistry(Scheme()).Open(t.Context(), "hdfs://"+url, backends.Options{
		RetryFor: time.Second, Getenv: secure(t).Getenv(changed...),
	})
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

// kadmin is its path on Debian.
const kadmin = "/usr/sbin/kadmin.local"

// keysFor creates a principal and returns a keytab with its key.
func keysFor(t *testing.T, principal string, options ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keytab")
	admin := secure(t)
	admin.Run(t, kadmin, "-q", strings.Join(append(append([]string{"addprinc", "-randkey"}, options...), principal), " "))
	admin.Run(t, kadmin, "-q", "ktadd -k "+path+" "+principal)
	return path
}

const (
	withKeys   = "KRB5CCNAME="
	withTicket = "KRB5_CLIENT_KTNAME="
)

// few shortens the conformance tests: only the connection to the servers differs here.
var few = conformance.Options{Unfit: unfit, Without: noParts, MaxSize: 3 << 20, Many: 20}

func TestContractWithKerberos(t *testing.T) {
	secure(t)
	conformance.Run(t, func(t *testing.T) *backends.Store {
		return openAt(t, secure(t), "cluster"+directory(t), withKeys)
	}, few)
}

// roundTrip writes several blocks and reads them back.
func roundTrip(t *testing.T, s *backends.Store) {
	t.Helper()
	const size = 3<<20 + 7
	contents := conformance.ContentsOf(t.Name(), size)
	obj, err := s.Put(t.Context(), "k", contents, size, backends.CreateOptions{})
	if err != nil {
		t.Fatalf("writing: %v", err)
	}
	to := &checked{want: contents}
	if _, err := s.ReadRange(t.Context(), obj, 0, size, to, nil); err != nil || to.wrong.Load() > 0 || to.bytes.Load() != size {
		t.Errorf("reading: %v, %d bytes of %d came, %d pieces wrong", err, to.bytes.Load(), size, to.wrong.Load())
	}
}

func TestKerberosTicketIsEnough(t *testing.T) {
	roundTrip(t, openAt(t, secure(t), "cluster"+directory(t), withTicket))
}

func TestErrorsOfKerberos(t *testing.T) {
	server := secure(t)
	dir := t.TempDir()
	keys := server.Env["KRB5_CLIENT_KTNAME"]
	old := keysFor(t, "changed")
	server.Run(t, kadmin, "-q", "cpw -randkey changed")
	ghost := keysFor(t, "ghost")
	server.Run(t, kadmin, "-q", "delprinc -force ghost")
	server.Run(t, "kinit", "-l", "1s", "-k", "-t", keys, "-c", "FILE:"+dir+"/expired", "stager")
	conf, err := os.ReadFile(server.Env["KRB5_CONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	_, kdc, _ := strings.Cut(string(conf), " kdc = ")
	kdc, _, _ = strings.Cut(kdc, "\n")
	away := filepath.Join(dir, "away.conf")
	if err := os.WriteFile(away, []byte(strings.Replace(string(conf), " kdc = "+kdc, " kdc = 127.0.0.1:1", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(server.Env["HDFS_SERVER"])
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what, url string
		env       []string
		kind      backends.Kind
		words     string
	}{
		{"no ticket", "cluster/", []string{withTicket, "KRB5CCNAME=" + dir + "/none"}, backends.Permission, "there is no keytab and no ticket: " + dir + "/none"},
		{"a ticket that expired", "cluster/", []string{withTicket, "KRB5CCNAME=FILE:" + dir + "/expired"}, backends.Permission, "has expired: run kinit again"},
		{"a ticket in the kernel", "cluster/", []string{withTicket, "KRB5CCNAME=KEYRING:persistent:0"}, backends.Permission, "kinit -c FILE:"},
		{"a ticket of a daemon", "cluster/", []string{withTicket, "KRB5CCNAME=KCM:"}, backends.Permission, "type KCM"},
		{"an old key", "cluster/", []string{"KRB5_CLIENT_KTNAME=" + old}, backends.Permission, "export the keytab again"},
		{"nobody", "cluster/", []string{"KRB5_CLIENT_KTNAME=" + ghost}, backends.Permission, "does not know the user"},
		{"no Kerberos server", "cluster/", []string{"KRB5_CONFIG=" + away}, backends.Unavailable, "no Kerberos server of the realm responds"},
		{"a service that is none", "cluster/?namenode-principal=xx/_HOST", nil, backends.Permission, "no service xx/localhost"},
		{"another service", "cluster/?namenode-principal=dn/localhost", nil, backends.Permission, "rejects the ticket"},
		{"an address for a name", "127.0.0.1:" + port + "/", nil, backends.Permission, "no service nn/127.0.0.1"},
	} {
		s, err := secured(t, tt.url, tt.env...)
		for err == nil {
			_, err = s.Stat(t.Context(), "k")
			if backends.KindOf(err) == backends.NotExist { // until the ticket of one second expires
				s, err = secured(t, tt.url, tt.env...)
			}
		}
		wantRefused(t, tt.what, err, tt.kind, tt.words)
	}
}

func TestKerberosServerUnreachableOrWrong(t *testing.T) {
	server := secure(t)
	s, err := secured(t, "cluster/", withKeys)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Stat(t.Context(), "k")
	wantRefused(t, "as it should be", err, backends.NotExist, "")
	server.Order(t, "kill kdc")
	_, err = s.Stat(t.Context(), "k")
	wantRefused(t, "with a ticket, and its server away", err, backends.NotExist, "")
	server.Order(t, "shift kdc")
	other, err := secured(t, "cluster/", withKeys)
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Stat(t.Context(), "k")
	wantRefused(t, "with clocks that differ", err, backends.Permission, "clocks")
	server.Order(t, "set kdc")
	_, err = other.Stat(t.Context(), "k")
	wantRefused(t, "with a clock that was set", err, backends.NotExist, "")
}

// A job runs for days and a ticket lasts for hours. Each login here needs a valid one.
func TestKerberosTicketExpires(t *testing.T) {
	const life = 4 * time.Second
	keys := keysFor(t, "brief", "-maxlife", "4sec")
	s, err := secured(t, "cluster/", withKeys, "KRB5_CLIENT_KTNAME="+keys)
	if err != nil {
		t.Fatal(err)
	}
	b, logins := inner(s), 0
	for start := time.Now(); time.Since(start) < 2*life || logins < 10; logins++ {
		fresh, err := b.pool.dial(t.Context())
		if err != nil {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		if _, err := fresh.status("/"); err != nil {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		fresh.end()
	}
}

// A writer connects to the NameNode again at its end. Kerberos has ended the login of its beginning by
// then if the keytab was replaced, or if a login beside it failed.
func TestKerberosLoginEndsDuringAStream(t *testing.T) {
	keys := keysFor(t, "long")
	s, err := secured(t, "cluster/", withKeys, "KRB5_CLIENT_KTNAME="+keys)
	if err != nil {
		t.Fatal(err)
	}
	b := inner(s)
	session, err := b.pool.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer session.end()
	old, err := b.pool.login.Client()
	if err != nil {
		t.Fatal(err)
	}
	b.pool.login.Forget()
	old.Destroy() // Forget does that after a while
	session.used = time.Time{}
	if _, err := session.status("/"); err != nil {
		t.Error(err)
	}
}

func TestNameNodesAlternate(t *testing.T) {
	server := secure(t)
	s := openAt(t, server, "cluster"+directory(t))
	store := lasting(s)
	const size = 48 << 20
	contents := conformance.ContentsOf("turns", size)
	obj, err := store.Put(t.Context(), "k", contents, size, backends.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server.Order(t, "deactivate nn1")
	server.Order(t, "activate nn2")
	// nn1 is first in the configuration and is now a standby.
	if _, err := openAt(t, server, "cluster/"+inner(s).base+"/").Stat(t.Context(), "k"); err != nil {
		t.Errorf("with the standby first: %v", err)
	}
	to := &checked{want: contents}
	killed := make(chan struct{})
	to.first = func() {
		server.Order(t, "kill nn2")
		close(killed)
	}
	var g errgroup.Group
	const part = 8 << 20
	for off := int64(0); off < size; off += part {
		g.Go(func() error {
			_, err := store.ReadRange(t.Context(), obj, off, part, to, nil)
			return err
		})
	}
	<-killed
	server.Order(t, "activate nn1")
	if err := g.Wait(); err != nil {
		t.Errorf("reading while the NameNodes change: %v", err)
	}
	if to.wrong.Load() > 0 || to.bytes.Load() != size {
		t.Errorf("%d bytes of %d came, and %d pieces were wrong", to.bytes.Load(), size, to.wrong.Load())
	}
	if _, err := store.PutBytes(t.Context(), "after", []byte("x"), backends.CreateOptions{}); err != nil {
		t.Errorf("writing afterwards: %v", err)
	}
	server.Order(t, "start nn2")
}

func TestProtections(t *testing.T) {
	server := secure(t)
	for _, tt := range []struct{ order, words string }{
		{"privacy", "old cipher"},
		{"integrity", "dfs.data.transfer.protection=integrity"},
		{"aes", ""},
		{"rpc integrity", ""}, // for which the NameNode restarts; DataNodes keep what is above
	} {
		if testing.Short() && (tt.order == "privacy" || tt.order == "rpc integrity") {
			continue
		}
		t.Run(tt.order, func(t *testing.T) {
			server.Order(t, "protect "+tt.order)
			s := lasting(openAt(t, server, "cluster"+directory(t)))
			if tt.words == "" {
				roundTrip(t, s)
				return
			}
			obj, err := s.PutBytes(t.Context(), "k", []byte("some bytes"), backends.CreateOptions{})
			if err != nil {
				t.Fatalf("writing: %v", err)
			}
			wantRefused(t, "reading", read(t, s, obj), backends.Unsupported, tt.words)
			if tt.order == "integrity" {
				strict := openAt(t, server, fmt.Sprintf("cluster%s?data-protection=privacy", directory(t)))
				_, err := strict.PutBytes(t.Context(), "k", []byte("secret"), backends.CreateOptions{})
				wantRefused(t, "less protection than required", err, backends.Permission, "less protection")
			}
		})
	}
}

// lasting returns a store that retries long enough for a DataNode to come back.
func lasting(s *backends.Store) *backends.Store {
	b := inner(s)
	return backends.NewStore(b, s.Name(), backends.Options{RetryFor: time.Minute}).Sub(b.base)
}
