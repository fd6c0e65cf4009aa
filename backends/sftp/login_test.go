package sftp

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/stager-dev/stager/backends"
)

// newKey returns a key that no server knows.
func newKey(t *testing.T) (ed25519.PrivateKey, ssh.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return private, key
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLogin(t *testing.T) {
	s := need(t)
	dir, server := t.TempDir(), s.Env["SFTP_SERVER"]
	known := strings.TrimSpace(read(t, s.Env["SSH_KNOWN_HOSTS"]))
	host, _, _, _, err := ssh.ParseAuthorizedKey([]byte(known[strings.Index(known, " ")+1:]))
	if err != nil {
		t.Fatal(err)
	}
	private, other := newKey(t)
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	stranger := write(t, dir+"/stranger", string(pem.EncodeToMemory(block)))
	// A Secret with all that is needed, and a home directory as ssh has it.
	for name, from := range map[string]string{"ssh-privatekey": "SSH_PRIVATE_KEY", "known_hosts": "SSH_KNOWN_HOSTS"} {
		write(t, dir+"/secret/"+name, read(t, s.Env[from]))
	}
	write(t, dir+"/secret/username", s.Env["SFTP_USERNAME"]+"\n")
	write(t, dir+"/home/.ssh/id_ed25519", read(t, s.Env["SSH_PRIVATE_KEY"]))
	write(t, dir+"/home/.ssh/known_hosts", known)
	changed := write(t, dir+"/changed", "# first line\n"+knownhosts.Line([]string{server}, other)+"\n")
	revoked := write(t, dir+"/revoked", known+"\n@revoked * "+known[strings.Index(known, " ")+1:]+"\n")
	broken := write(t, dir+"/broken", server+" ssh-ed25519 not-base64\n")
	rsaOnly := write(t, dir+"/rsa", "["+strings.Replace(server, ":", "]:", 1)+" ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDAu7tvI1xbIgHyCJEX3eRZVyvj4WwBMQYuRd1yTxzyyLeQyTRMMuEfLeFKGFlyTvKyeHJzNCZ8wAtbRL9fl7ZNMsCxDBIlJs0zh6gLYTYKm4qwkZ6iY6L8+rDLC7/dRu3vhOUrqbuwSnPSgtyF1jZvxpV5wvVqf9uRMUYwXm3bMw==\n")
	unknown := write(t, dir+"/empty", "")
	wrongPin := ssh.FingerprintSHA256(other)
	const none = backends.Kind(255)
	env := func(changes ...string) map[string]string { // all but the changes is right
		of := map[string]string{}
		for _, name := range []string{"SSH_PRIVATE_KEY", "SSH_KNOWN_HOSTS", "SFTP_USERNAME"} {
			of[name] = s.Env[name]
		}
		for _, c := range changes {
			name, value, _ := strings.Cut(c, "=")
			of[name] = value
		}
		return of
	}
	for _, tt := range []struct {
		name    string
		env     map[string]string
		secrets string
		params  string
		kind    backends.Kind
		words   []string
	}{
		{"key by its path", env(), "", "", none, nil},
		{"key as a text", env("SSH_PRIVATE_KEY=" + read(t, s.Env["SSH_PRIVATE_KEY"])), "", "", none, nil},
		{"Secret", nil, dir + "/secret", "", none, nil},
		{"home directory", map[string]string{"HOME": dir + "/home", "SFTP_USERNAME": s.Env["SFTP_USERNAME"]}, "", "", none, nil},
		{"pinned host key", env("SSH_KNOWN_HOSTS=" + unknown), "", "?hostkey=" + ssh.FingerprintSHA256(host), none, nil},
		{"unknown host key", env("SSH_KNOWN_HOSTS=" + unknown), "", "", backends.Permission, []string{"is unknown", ssh.FingerprintSHA256(host), "add to " + unknown, known, "or set ?hostkey="}},
		{"no known_hosts at all", env("SSH_KNOWN_HOSTS=" + dir + "/nowhere"), "", "", backends.Permission, []string{"is unknown", "add to " + dir + "/nowhere"}},
		{"changed host key", env("SSH_KNOWN_HOSTS=" + changed), "", "", backends.Permission, []string{"has changed", "line 2 of " + changed, "only if the key was renewed"}},
		{"changed pinned host key", env(), "", "?hostkey=" + strings.ReplaceAll(wrongPin, "+", "%2B"), backends.Permission, []string{"has changed", wrongPin}},
		{"host key of another type", env("SSH_KNOWN_HOSTS=" + rsaOnly), "", "", backends.Permission, []string{"has changed", "rsa-sha2-512"}},
		{"revoked host key", env("SSH_KNOWN_HOSTS=" + revoked), "", "", backends.Permission, []string{"is revoked"}},
		{"broken known_hosts", env("SSH_KNOWN_HOSTS=" + broken), "", "", backends.Permission, []string{"cannot read the known host keys", "broken:1"}},
		{"key that the server does not know", env("SSH_PRIVATE_KEY=" + stranger), "", "", backends.Permission, []string{"the server rejects the private key of user"}},
		{"encrypted key", env("SSH_PRIVATE_KEY=" + s.Env["SFTP_LOCKED_KEY"]), "", "", backends.Permission, []string{"is encrypted: set SSH_PRIVATE_KEY_PASSPHRASE"}},
		{"wrong passphrase", env("SSH_PRIVATE_KEY="+s.Env["SFTP_LOCKED_KEY"], "SSH_PRIVATE_KEY_PASSPHRASE=hunter2"), "", "", backends.Permission, []string{"the passphrase does not open"}},
		{"right passphrase", env("SSH_PRIVATE_KEY="+s.Env["SFTP_LOCKED_KEY"], "SSH_PRIVATE_KEY_PASSPHRASE="+s.Env["SFTP_PASSPHRASE"]), "", "", none, nil},
		{"no key", env("SSH_PRIVATE_KEY="), "", "", backends.Permission, []string{"no private key and no password were found for user"}},
		{"no user", env("SFTP_USERNAME="), "", "", backends.Permission, []string{"no user was found"}},
		{"missing key", env("SSH_PRIVATE_KEY=" + dir + "/nowhere"), "", "", backends.Permission, []string{"cannot read the private key", "nowhere"}},
		{"another file", env("SSH_PRIVATE_KEY=" + unknown), "", "", backends.Permission, []string{"is not a private key"}},
		{"wrong password", env("SSH_PRIVATE_KEY=", "SFTP_PASSWORD=hunter2"), "", "", backends.Permission, []string{"the server rejects the password of user"}},
		{"right password", env("SSH_PRIVATE_KEY=", "SFTP_PASSWORD="+s.Env["SFTP_TEST_PASSWORD"]), "", "", none, nil},
	} {
		if tt.name == "right password" && s.Env["SFTP_TEST_PASSWORD"] == "" {
			continue // the server runs as a user who cannot check passwords
		}
		var log bytes.Buffer
		err := func() error {
			store, err := backends.NewRegistry(Scheme()).Open(t.Context(), at(s, "login", tt.params), backends.Options{
				Getenv:   func(name string) string { return tt.env[name] },
				Secrets:  tt.secrets,
				RetryFor: 1,
				Log:      slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err != nil {
				return err
			}
			defer store.Close()
			_, err = store.PutBytes(t.Context(), "k", []byte("x"), backends.CreateOptions{})
			return err
		}()
		got := none
		if err != nil {
			got = backends.KindOf(err)
		}
		if got != tt.kind {
			t.Errorf("%s: got kind %v (%v), want %v", tt.name, got, err, tt.kind)
		}
		for _, words := range tt.words {
			if !strings.Contains(fmt.Sprint(err), words) {
				t.Errorf("%s: got %v, want %q in it", tt.name, err, words)
			}
		}
		if said := fmt.Sprint(err) + log.String(); strings.Contains(said, "hunter2") || strings.Contains(said, "PRIVATE KEY---") {
			t.Errorf("%s: a secret is in %s", tt.name, said)
		}
	}
}

func TestAgentKeys(t *testing.T) {
	s := need(t)
	keys := agent.NewKeyring()
	raw, err := ssh.ParseRawPrivateKey([]byte(read(t, s.Env["SSH_PRIVATE_KEY"])))
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.Add(agent.AddedKey{PrivateKey: raw}); err != nil {
		t.Fatal(err)
	}
	socket := fakeAgent(t, func(conn net.Conn) { _ = agent.ServeAgent(keys, conn) })
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), at(s, "agent", ""), backends.Options{Getenv: s.Getenv("SSH_PRIVATE_KEY=", "SSH_AUTH_SOCK="+socket)})
	if err != nil {
		t.Fatalf("login with the key of an agent: %v", err)
	}
	store.Close()
}
