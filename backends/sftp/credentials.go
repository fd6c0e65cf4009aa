package sftp

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/stager-dev/stager/backends"
)

// login is how a connection authenticates. Each connection reads the credentials again, so that it
// picks up a changed Secret.
type login struct {
	user    string
	methods []ssh.AuthMethod
	tried   []string  // what the methods offer, for errors
	agent   io.Closer // nil without one
}

func (l *login) close() {
	if l.agent != nil {
		_ = l.agent.Close() // it was only read
	}
}

func (d *dialer) getenv(name string) string {
	if d.opts.Getenv == nil {
		return ""
	}
	return d.opts.Getenv(name)
}

// secret returns the text of a file of the Secret, or "" if there is none.
func (d *dialer) secret(name string) (string, error) {
	if d.opts.Secrets == "" {
		return "", nil
	}
	text, err := os.ReadFile(filepath.Join(d.opts.Secrets, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", refused("cannot read the credentials: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// first returns the text of a file of the Secret, or else of a variable.
func (d *dialer) first(file, variable string) (string, error) {
	text, err := d.secret(file)
	if text != "" || err != nil {
		return text, err
	}
	return d.getenv(variable), nil
}

// refused returns an error of kind Permission for a connection.
func refused(format string, args ...any) *backends.Error {
	return backends.Errorf(backends.Permission, "open", "", format, args...)
}

// login collects the credentials: a private key, the keys of an agent, and a password. Without any
// of them it uses the keys of the home directory, as ssh does.
func (d *dialer) login(ctx context.Context) (_ *login, err error) {
	l := &login{user: d.user}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.user == "" {
		if l.user, err = d.first("username", "SFTP_USERNAME"); err != nil {
			return nil, err
		}
	}
	if l.user == "" {
		return nil, refused("no user was found for the server")
	}
	password, err := d.first("password", "SFTP_PASSWORD")
	if err != nil {
		return nil, err
	}
	keys, err := d.keys()
	if err != nil {
		return nil, err
	}
	fromAgent := d.agentKeys(ctx, l)
	if len(keys) == 0 && fromAgent == nil && password == "" {
		if keys, err = d.defaultKeys(); err != nil {
			return nil, err
		}
	}
	if len(keys) > 0 || fromAgent != nil {
		l.tried = append(l.tried, "private key")
		l.methods = append(l.methods, ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
			if fromAgent == nil {
				return keys, nil
			}
			more, err := fromAgent()
			if err != nil {
				d.log.Warn("cannot read the keys of the SSH agent", "error", err)
			}
			return append(keys, more...), nil
		}))
	}
	if password != "" {
		l.tried = append(l.tried, "password")
		l.methods = append(l.methods, ssh.Password(password), ssh.KeyboardInteractive(onlyPassword(password)))
	}
	if len(l.methods) == 0 {
		return nil, refused("no private key and no password were found for user %s", l.user)
	}
	return l, nil
}

// onlyPassword responds to the prompts that do not echo, which ask for a password.
func onlyPassword(password string) ssh.KeyboardInteractiveChallenge {
	return func(_, _ string, questions []string, echos []bool) ([]string, error) {
		responses := make([]string, len(questions))
		for i := range questions {
			if !echos[i] {
				responses[i] = password
			}
		}
		return responses, nil
	}
}

// agentKeys connects to the agent of SSH_AUTH_SOCK. It returns nil without one.
func (d *dialer) agentKeys(ctx context.Context, l *login) func() ([]ssh.Signer, error) {
	socket := d.getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		d.log.Warn("cannot connect to the SSH agent", "error", err)
		return nil
	}
	l.agent = conn
	return agent.NewClient(conn).Signers
}

// keys returns the private key of the Secret or of SSH_PRIVATE_KEY.
func (d *dialer) keys() ([]ssh.Signer, error) {
	for _, name := range []string{"ssh-privatekey", "SSH_PRIVATE_KEY"} {
		text, err := d.secret(name)
		if err != nil {
			return nil, err
		}
		if text != "" {
			return d.parseKey(text, filepath.Join(d.opts.Secrets, name))
		}
	}
	key := d.getenv("SSH_PRIVATE_KEY")
	switch {
	case key == "":
		return nil, nil
	case strings.Contains(key, "-----BEGIN "):
		return d.parseKey(key, "SSH_PRIVATE_KEY")
	case strings.ContainsAny(key, "\r\n"):
		return nil, refused("SSH_PRIVATE_KEY is neither a private key nor the path of one")
	}
	text, err := os.ReadFile(key)
	if err != nil {
		return nil, refused("cannot read the private key of SSH_PRIVATE_KEY: %w", err)
	}
	return d.parseKey(string(text), key)
}

// defaultKeys returns the keys that ssh uses by default.
func (d *dialer) defaultKeys() (keys []ssh.Signer, err error) {
	home := d.getenv("HOME")
	if home == "" {
		return nil, nil
	}
	var locked error
	for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
		file := filepath.Join(home, ".ssh", name)
		text, err := os.ReadFile(file)
		if err != nil {
			continue // there is none, or it is another user's
		}
		key, err := d.parseKey(string(text), file)
		if err != nil {
			locked = err
			continue
		}
		keys = append(keys, key...)
	}
	if len(keys) == 0 {
		return nil, locked
	}
	return keys, nil
}

// parseKey parses a private key, which was found at a place.
func (d *dialer) parseKey(text, place string) ([]ssh.Signer, error) {
	pem := []byte(text + "\n") // some Secrets lack the last newline
	key, err := ssh.ParsePrivateKey(pem)
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		passphrase, perr := d.first("passphrase", "SSH_PRIVATE_KEY_PASSPHRASE")
		if perr != nil {
			return nil, perr
		}
		if passphrase == "" {
			return nil, refused("the private key in %s is encrypted: set SSH_PRIVATE_KEY_PASSPHRASE, or mount a file named passphrase", place)
		}
		if key, err = ssh.ParsePrivateKeyWithPassphrase(pem, []byte(passphrase)); err != nil {
			return nil, refused("the passphrase does not open the private key in %s", place)
		}
	}
	if err != nil {
		// The cause could repeat parts of the key.
		return nil, refused("the text in %s is not a private key of OpenSSH or in PEM", place)
	}
	return []ssh.Signer{key}, nil
}

// rejection describes a login that the server has rejected.
func (l *login) rejection() error {
	return refused("the server rejects the %s of user %s", strings.Join(l.tried, " and the "), l.user)
}
