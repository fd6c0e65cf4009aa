package ftp

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

// kinds are the flags of the real servers.
var kinds = [][]string{{"-kind=vsftpd"}, {"-kind=proftpd"}, {"-kind=vsftpd", "-tls"}, {"-kind=proftpd", "-tls"}}

// openLive opens a directory of a real server.
func openLive(t *testing.T, server *live.Server, dir string) *backends.Store {
	t.Helper()
	at := "://" + server.Env["FTP_SERVER"] + "/" + filepath.Base(dir) + "/"
	if ca := server.Env["FTP_CA"]; ca != "" {
		at = "ftps" + at + "?ca-bundle=" + ca
	} else {
		at = "ftp" + at
	}
	store, err := backends.NewRegistry(Schemes()...).Open(t.Context(), at, backends.Options{Getenv: server.Getenv(), RetryFor: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func TestReadingHalfOfContractOnRealServers(t *testing.T) {
	for _, flags := range kinds {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			server := live.Start(t, "ftp", flags...)
			dir := live.Plant(t, server.Env["FTP_DIR"], planting, began)
			for link, target := range map[string]string{"link": "big.bin", "dead": "nowhere", "dir": "a", "ü/up": ".."} {
				if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			store := openLive(t, server, dir)
			objects := listing(t, store)
			want := append(below(), "dir/b", "link")
			slices.Sort(want)
			if got := keys(objects); !slices.Equal(got, want) {
				t.Fatalf("the listing has %q, want %q", got, want)
			}
			conformance.Inspect(t, func(*testing.T) *backends.Store { return store }, objects)
			for _, obj := range objects {
				if _, plain := planting[obj.Key]; plain {
					wantReads(t, store, obj)
				}
			}
			for _, key := range []string{"a", "missing", "missing/x", "big.bin/x"} {
				if _, err := store.Stat(t.Context(), key); backends.KindOf(err) != backends.NotExist {
					t.Errorf("stat %q: got %v, want kind not-exist", key, err)
				}
			}
			for _, err := range store.Sub("nowhere").List(t.Context(), "") {
				if !backends.Empty(err) {
					t.Errorf("listing a missing directory: got %v, want none", err)
				}
			}
			big := objects[slices.IndexFunc(objects, func(obj backends.Object) bool { return obj.Key == "big.bin" })]
			live.PlantFile(t, filepath.Join(dir, "big.bin"), make([]byte, big.Size), began.Add(time.Hour))
			if _, err := store.ReadRange(t.Context(), big, 0, 10, make(memory, 10), nil); backends.KindOf(err) != backends.Changed {
				t.Errorf("reading an old version: got %v, want kind changed", err)
			}
		})
	}
}

// Names with line breaks cannot be read by FTP, and are not passed over. vsftpd lists them with
// question marks.
func TestLineBreaksInNamesOnRealServers(t *testing.T) {
	for _, flags := range kinds[:2] {
		for name, broken := range map[string]string{"LF": "a\nb", "CR": "a\rb", "an entry": "a\n-rw-r--r-- 1 0 0 5 Nov 26 18:00 ..", "not UTF-8": "a\xffb"} {
			t.Run(flags[0]+" "+name, func(t *testing.T) {
				server := live.Start(t, "ftp", flags...)
				dir := live.Plant(t, server.Env["FTP_DIR"], planting, began)
				live.PlantFile(t, filepath.Join(dir, broken), []byte("x"), began)
				var err error
				for _, err = range openLive(t, server, dir).List(t.Context(), "") {
				}
				if backends.KindOf(err) != backends.Unsupported || !strings.Contains(err.Error(), "rename") {
					t.Errorf("listing: got %v, want kind unsupported with a hint to rename", err)
				}
			})
		}
	}
}

// A server that is killed in the middle of a file is asked for the rest.
func TestReadsSurviveDeathOfRealServers(t *testing.T) {
	for _, flags := range kinds[1:3] {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			server := live.Start(t, "ftp", flags...)
			store := openLive(t, server, live.Plant(t, server.Env["FTP_DIR"], planting, began))
			obj, err := store.Stat(t.Context(), "big.bin")
			if err != nil {
				t.Fatal(err)
			}
			got := make(memory, obj.Size)
			killed := false
			at := writerAt(func(p []byte, off int64) (int, error) {
				if !killed {
					killed = true
					server.Order(t, "away 300ms")
				}
				return got.WriteAt(p, off)
			})
			if _, err := store.ReadRange(t.Context(), obj, 0, obj.Size, at, nil); err != nil {
				t.Errorf("reading: %v", err)
			}
			if want := conformance.ContentsOf("big.bin", obj.Size).Bytes(); !slices.Equal([]byte(got), want) {
				t.Error("the bytes are not those of the file")
			}
		})
	}
}

// writerAt is a function as an io.WriterAt.
type writerAt func(p []byte, off int64) (int, error)

func (w writerAt) WriteAt(p []byte, off int64) (int, error) { return w(p, off) }

// Servers that start with TLS are not started for the tests: one of ours passes the bytes on.
func TestImplicitTLS(t *testing.T) {
	server := live.Start(t, "ftp", "-kind=proftpd", "-tls")
	ca := server.Env["FTP_CA"]
	cert, err := tls.LoadX509KeyPair(filepath.Join(filepath.Dir(ca), "cert.pem"), filepath.Join(filepath.Dir(ca), "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func(conn net.Conn) {
				defer conn.Close()
				_, _ = io.WriteString(conn, "220 ready\r\n530 no\r\n")
				_, _ = io.Copy(io.Discard, conn)
			}(conn)
		}
	}()
	url := "ftps://" + listener.Addr().String() + "/?tls=implicit"
	open := func(params string) error {
		_, err := backends.NewRegistry(Schemes()...).Open(t.Context(), url+params, backends.Options{RetryFor: 1})
		return err
	}
	if err := open("&ca-bundle=" + ca); backends.KindOf(err) != backends.Permission || !strings.Contains(err.Error(), "rejects anonymous logins") {
		t.Errorf("a login by TLS: got %v, want its rejection", err)
	}
	if err := open(""); backends.KindOf(err) != backends.Invalid || !strings.Contains(err.Error(), "set the authority's file with ?ca-bundle=") {
		t.Errorf("an unknown authority: got %v, want kind invalid with ?ca-bundle=", err)
	}
}
