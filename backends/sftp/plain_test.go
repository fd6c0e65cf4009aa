package sftp

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/stager-dev/stager/backends"
)

// startPlain starts an SFTP server of version 3 without any extension, and returns its address and
// the fingerprint of its key.
func startPlain(t *testing.T) (address, fingerprint string) {
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
			conns.Go(func() { servePlain(t, conn, cfg) })
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
func servePlain(t *testing.T, conn net.Conn, cfg *ssh.ServerConfig) {
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
			server, err := sftp.NewServer(channel)
			if err == nil {
				err = server.Serve()
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
	address, fingerprint := startPlain(t)
	var log bytes.Buffer
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), "sftp://user@"+address+dir+"/?hostkey="+strings.ReplaceAll(fingerprint, "+", "%2B"), backends.Options{
		Getenv:   func(name string) string { return map[string]string{"SFTP_PASSWORD": "secret"}[name] },
		RetryFor: time.Minute,
		Log:      slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if c := store.Capabilities(); c.AtomicReplace || c.ConditionalCreate {
		t.Errorf("got the capabilities %+v, want neither AtomicReplace nor ConditionalCreate", c)
	}
	for _, weaker := range []string{"a crash of the server may lose new files", "readers may find no file while it is replaced", "writers that race for a key may replace"} {
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
