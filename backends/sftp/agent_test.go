package sftp

import (
	"bytes"
	"log/slog"
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
