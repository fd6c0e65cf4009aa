package nfs

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/nfs/internal/nfstest"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// A server without READDIRPLUS, which is optional in RFC 1813 and missing in unfs3, could not be
// listed.
func TestListWithoutREADDIRPLUS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := nfstest.New()
		s.NoPlus = true
		s.Mkdir("data")
		store, err := openFake(t.Context(), s, "data", "vers=3&rsize=4KiB")
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		var want []string
		for i := range 300 {
			want = append(want, fmt.Sprintf("a/%03d", i))
			if _, err := store.PutBytes(t.Context(), want[i], []byte("12345"), backends.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			var got []string
			for obj, err := range store.List(t.Context(), "") {
				if err != nil || obj.Size != 5 {
					t.Fatalf("got %+v, %v", obj, err)
				}
				got = append(got, obj.Key)
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %d names, want the %d that were written", len(got), len(want))
			}
		}
		if got := s.Count3(17); got != 1 {
			t.Errorf("READDIRPLUS was tried %d times, want once", got)
		}
	})
}

// onLoopback serves s on a loopback port.
func onLoopback(t *testing.T, s *nfstest.Server) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := s.Dial(t.Context())
			if err != nil {
				from.Close()
				return
			}
			pass := func(a, b net.Conn) {
				_, _ = io.Copy(a, b) // either end may close
				a.Close()
				b.Close()
			}
			go pass(from, to)
			go pass(to, from)
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// A push to a missing directory of a read-only export once exited with 66, "source missing". A read
// there must still report that the directory is missing.
func TestMissingDirOfAReadOnlyExport(t *testing.T) {
	s := nfstest.New()
	s.Mkdir("data")
	s.ReadOnly = true
	port := onLoopback(t, s)
	for _, vers := range []string{"4.1", "3"} {
		store, err := backends.NewRegistry(Scheme()).Open(t.Context(), "nfs://127.0.0.1:"+port+"/data/new/?vers="+vers+"&mountport="+port, backends.Options{})
		if err != nil {
			t.Fatalf("vers=%s: %v", vers, err)
		}
		_, err = store.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{})
		if backends.KindOf(err) != backends.Permission || !strings.Contains(fmt.Sprint(err), "read-only") {
			t.Errorf("vers=%s: a write ends with %v (%v), want kind permission and the word read-only", vers, err, backends.KindOf(err))
		}
		if _, err = store.Stat(t.Context(), "k"); backends.KindOf(err) != backends.NotExist {
			t.Errorf("vers=%s: a read ends with %v (%v), want kind not-exist", vers, err, backends.KindOf(err))
		}
		store.Close()
	}
}

// For a wrong export of a server with version 3 only, the error was once about version 4.1.
func TestWrongExportOfAServerOfVersion3(t *testing.T) {
	s := nfstest.New()
	s.Only = 3
	s.ReadOnlyRoot = true
	s.Mkdir("data")
	port := onLoopback(t, s)
	_, err := backends.NewRegistry(Scheme()).Open(t.Context(), "nfs://127.0.0.1:"+port+"/nosuchexport/?mountport="+port, backends.Options{})
	if backends.KindOf(err) != backends.NotExist || !strings.Contains(fmt.Sprint(err), "exports /data") {
		t.Errorf("got %v (%v), want kind not-exist and the exports that there are", err, backends.KindOf(err))
	}
}

// A mount that was refused because of the client's port was once not tried from a privileged one:
// UNFS3 refuses so by default.
func TestRefusedMountMayNeedAPrivilegedPort(t *testing.T) {
	s := nfstest.New()
	s.Mkdir("data")
	service := rpc.NewClient(s.Dial, 1, rpc.Options{})
	defer service.Close()
	var ports []string
	_, _, err := port(settings{resvport: "auto"}, func(c settings) (*share, string, error) {
		ports = append(ports, c.resvport)
		return nil, "", unmounted(t.Context(), service, c.credential(), "data", &remote.Error{Status: remote.Access, Op: "MNT"})
	})
	if want := []string{"auto", "true"}; !slices.Equal(ports, want) {
		t.Errorf("got tries with resvport %q, want %q", ports, want)
	}
	if backends.KindOf(err) != backends.Permission || !strings.Contains(fmt.Sprint(err), "not to this machine") {
		t.Errorf("got %v (%v), want kind permission, and that the export is not for this machine", err, backends.KindOf(err))
	}
}
