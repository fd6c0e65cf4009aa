package sftp

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/stager-dev/stager/backends"
)

// server is one session of an SFTP server.
type server interface{ Serve() error }

// ofDisk serves the files of this machine.
func ofDisk(channel io.ReadWriteCloser, _ func()) (server, error) { return sftp.NewServer(channel) }

// startPlain starts an SFTP server of version 3 without any extension, and returns its address and
// the fingerprint of its key. serving returns the server of a session, which can cut its connection.
func startPlain(t *testing.T, serving func(channel io.ReadWriteCloser, cut func()) (server, error)) (address, fingerprint string) {
	t.Helper()
	if err := sftp.SetSFTPExtensions(); err != nil {
		t.Fatal(err)
	}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &ssh.ServerConfig{PasswordCallback: func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) { return &ssh.Permissions{}, nil }}
	cfg.AddHostKey(key)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			conns.Go(func() { servePlain(t, conn, cfg, serving) })
		}
	})
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		conns.Wait() // the clients closed theirs before
	})
	return listener.Addr().String(), ssh.FingerprintSHA256(key.PublicKey())
}

// servePlain serves the sessions of one connection until the client closes it.
func servePlain(t *testing.T, conn net.Conn, cfg *ssh.ServerConfig, serving func(io.ReadWriteCloser, func()) (server, error)) {
	_, channels, requests, err := ssh.NewServerConn(conn, cfg)
	if err != nil {
		t.Errorf("the server got %v, want an SSH connection", err)
		return
	}
	go ssh.DiscardRequests(requests)
	var sessions sync.WaitGroup
	for offered := range channels {
		channel, requests, err := offered.Accept()
		if err != nil {
			t.Errorf("the server got %v, want a session", err)
			continue
		}
		go func() {
			for r := range requests {
				_ = r.Reply(r.Type == "subsystem", nil) // the client sees if it fails
			}
		}()
		sessions.Go(func() {
			s, err := serving(channel, func() { _ = conn.Close() }) // it is what is wanted
			if err == nil {
				err = s.Serve()
			}
			if err != nil && !errors.Is(err, io.EOF) {
				t.Logf("the server's session ended: %v", err)
			}
			channel.Close() // the client has left
		})
	}
	sessions.Wait()
}

// A server without the extensions of OpenSSH is listed and read like any other. What it cannot
// promise to writers is in its capabilities and in the log.
func TestReadWithoutExtensions(t *testing.T) {
	dir := t.TempDir()
	large := strings.Repeat("0123456789abcdef", 1<<16)
	for name, text := range map[string]string{"a/1.tar": "one", "a/2.tar": large, "b.txt": "", "a-b": "between"} {
		write(t, dir+"/"+name, text)
	}
	address, fingerprint := startPlain(t, ofDisk)
	var log bytes.Buffer
	store, err := openPlain(t, address, fingerprint, dir+"/", &log)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if c := store.Capabilities(); c.AtomicReplace || c.ConditionalCreate {
		t.Errorf("got the capabilities %+v, want neither AtomicReplace nor ConditionalCreate", c)
	}
	for _, weaker := range []string{"the SSH server lacks extensions of SFTP", "a crash of the server may lose new files", "readers may find no file while it is replaced", "writers that race for a key may replace"} {
		if !strings.Contains(log.String(), weaker) {
			t.Errorf("got the log %q, want %q in it", log.String(), weaker)
		}
	}
	var keys []string
	for obj, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, obj.Key)
	}
	if want := []string{"a-b", "a/1.tar", "a/2.tar", "b.txt"}; !slices.Equal(keys, want) {
		t.Errorf("got the keys %q, want %q", keys, want)
	}
	got, obj, err := store.ReadAll(t.Context(), "a/2.tar", int64(len(large)))
	if err != nil || string(got) != large {
		t.Errorf("got %d bytes, %v; want the %d bytes of the file", len(got), err, len(large))
	}
	raw, prefix := store.Backend()
	obj.Key = prefix + obj.Key
	body, err := raw.OpenRange(t.Context(), obj, 1<<19+3, 40_000)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if part, err := io.ReadAll(body); err != nil || string(part) != large[1<<19+3:1<<19+3+40_000] {
		t.Errorf("got %d bytes of a range, %v; want those 40000 of the file", len(part), err)
	}
	if _, err := store.Stat(t.Context(), "a/3.tar"); backends.KindOf(err) != backends.NotExist {
		t.Errorf("missing file: got %v, want kind not exist", err)
	}
	if _, err := store.Stat(t.Context(), "a"); backends.KindOf(err) != backends.NotExist {
		t.Errorf("directory: got %v, want kind not exist", err)
	}
	write(t, dir+"/a/2.tar", "another")
	body, err = raw.OpenRange(t.Context(), obj, 0, 10)
	if err == nil {
		defer body.Close()
		_, err = io.ReadAll(body)
	}
	if backends.KindOf(err) != backends.Changed {
		t.Errorf("replaced file: got %v, want kind changed", err)
	}
}
