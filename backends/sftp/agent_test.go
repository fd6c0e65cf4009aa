package sftp

import (
	"bytes"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// An agent that does not respond is no reason to fail: there may be a key or a password.
func TestMissingAgentIsLogged(t *testing.T) {
	for socket, want := range map[string]bool{"": false, filepath.Join(t.TempDir(), "none"): true} {
		var said bytes.Buffer
		d := &dialer{log: slog.New(slog.NewTextHandler(&said, nil)), opts: backends.Options{Getenv: func(name string) string {
			return map[string]string{"SSH_AUTH_SOCK": socket}[name]
		}}}
		if keys := d.agentKeys(t.Context(), &login{}); keys != nil {
			t.Errorf("SSH_AUTH_SOCK=%s: got keys, want none", socket)
		}
		if got := strings.Contains(said.String(), `level=WARN msg="cannot connect to the SSH agent"`); got != want {
			t.Errorf("SSH_AUTH_SOCK=%s: got the log %q, want a warning: %t", socket, said.String(), want)
		}
	}
}

// An agent that ends while it is asked for its keys is no reason to fail either.
func TestKeysOfABrokenAgentAreMissingAndLogged(t *testing.T) {
	s := need(t)
	socket := fakeAgent(t, func(conn net.Conn) { conn.Close() })
	var said bytes.Buffer
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), at(s, "broken-agent", ""), backends.Options{
		Getenv: s.Getenv("SSH_AUTH_SOCK=" + socket), Log: slog.New(slog.NewTextHandler(&said, nil)),
	})
	if err != nil {
		t.Fatalf("login with a key beside a broken agent: %v", err)
	}
	store.Close()
	if want := `level=WARN msg="cannot read the keys of the SSH agent"`; !strings.Contains(said.String(), want) {
		t.Errorf("the log is %q, want %s", said.String(), want)
	}
}

// fakeAgent listens until the test ends, and has serve handle each connection.
func fakeAgent(t *testing.T, serve func(net.Conn)) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "agent")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return socket
}
