package sftp

import (
	"crypto/ed25519"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// hostKeys decides whether the key of a server is the right one. No key is ever accepted without a
// fingerprint or an entry in known_hosts.
type hostKeys struct {
	address    string
	pinned     string              // fingerprint, or ""
	files      []string            // of known_hosts
	known      ssh.HostKeyCallback // checks against files
	algorithms []string            // of the keys that may be accepted; empty: all
	rejected   error               // the reason for which the last key was rejected
	seen       string              // its type
}

// hostKeys reads known_hosts: of the Secret, of SSH_KNOWN_HOSTS, or else those that ssh uses.
func (d *dialer) hostKeys() (*hostKeys, error) {
	k := &hostKeys{address: d.address, pinned: d.pinned}
	if k.pinned != "" {
		return k, nil
	}
	text, err := d.secret("known_hosts")
	switch {
	case err != nil:
		return nil, err
	case text != "":
		k.files = []string{filepath.Join(d.opts.Secrets, "known_hosts")}
	case d.getenv("SSH_KNOWN_HOSTS") != "":
		k.files = []string{d.getenv("SSH_KNOWN_HOSTS")}
	default:
		k.files = []string{"/etc/ssh/ssh_known_hosts"}
		if home := d.getenv("HOME"); home != "" {
			k.files = []string{filepath.Join(home, ".ssh", "known_hosts"), k.files[0]}
		}
	}
	if k.known, err = knownhosts.New(slices.DeleteFunc(slices.Clone(k.files), isMissing)...); err != nil {
		return nil, refused("cannot read the known host keys: %w", err)
	}
	k.algorithms = k.knownAlgorithms()
	return k, nil
}

func isMissing(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// knownAlgorithms returns the algorithms of the keys that known_hosts has for the server. A server
// with several keys would otherwise present one that the file lacks.
func (k *hostKeys) knownAlgorithms() (algorithms []string) {
	public, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize))) // a key that no server has
	if err != nil {
		return nil
	}
	var mismatch *knownhosts.KeyError
	if !errors.As(k.known(k.address, unresolved(k.address), public), &mismatch) {
		return nil
	}
	for _, want := range mismatch.Want {
		switch name := want.Key.Type(); name {
		case ssh.KeyAlgoRSA:
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		default:
			algorithms = append(algorithms, name)
		}
	}
	return algorithms
}

// unresolved is an address that has not been looked up.
type unresolved string

func (unresolved) Network() string  { return "tcp" }
func (u unresolved) String() string { return string(u) }

// check implements ssh.HostKeyCallback.
func (k *hostKeys) check(address string, remote net.Addr, key ssh.PublicKey) error {
	k.seen = key.Type()
	is := ssh.FingerprintSHA256(key)
	if k.pinned != "" {
		k.rejected = nil
		if is != k.pinned {
			k.rejected = refused("the host key of %s has changed or is that of another server: it is %s %s, but the URL demands ?hostkey=%s: "+
				"ask who runs the server, and change the URL only if the key was renewed", k.address, key.Type(), is, k.pinned)
		}
		return k.rejected
	}
	k.rejected = k.explain(k.known(address, remote, key), key)
	return k.rejected
}

// explain returns what to do about a key that known_hosts does not accept.
func (k *hostKeys) explain(err error, key ssh.PublicKey) error {
	var (
		mismatch *knownhosts.KeyError
		revoked  *knownhosts.RevokedError
		is       = key.Type() + " " + ssh.FingerprintSHA256(key)
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &revoked):
		return refused("the host key of %s, %s, is revoked in %s: do not use this server until it has a new key", k.address, is, revoked.Revoked.Filename)
	case errors.As(err, &mismatch) && len(mismatch.Want) > 0:
		was := mismatch.Want[0]
		return refused("the host key of %s has changed: it is %s, but line %d of %s has %s: it may be another server; "+
			"replace that line only if the key was renewed", k.address, is, was.Line, was.Filename, ssh.FingerprintSHA256(was.Key))
	case errors.As(err, &mismatch):
		return refused("the host key of %s is unknown: it is %s: compare this with the server's own, then add to %s the line %q, or set ?hostkey=%s",
			k.address, is, k.files[0], knownhosts.Line([]string{k.address}, key), strings.ReplaceAll(ssh.FingerprintSHA256(key), "+", "%2B"))
	}
	return refused("cannot check the host key of %s: %w", k.address, err)
}

// lacking describes a server that has no key of the types in known_hosts.
func (k *hostKeys) lacking() error {
	return refused("the host key of %s has changed: the server has no key of type %s, as %s demands: it may be another server; "+
		"replace the line of this server only if its key was renewed", k.address, strings.Join(k.algorithms, " or "), strings.Join(k.files, " or "))
}

// next excludes the type of a rejected key, since the pinned fingerprint may be that of another key
// of the server. It reports whether any type is left.
func (k *hostKeys) next() bool {
	if k.pinned == "" || k.rejected == nil {
		return false
	}
	if len(k.algorithms) == 0 {
		k.algorithms = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	before := len(k.algorithms)
	k.algorithms = slices.DeleteFunc(k.algorithms, func(name string) bool {
		return name == k.seen || k.seen == ssh.KeyAlgoRSA && strings.HasPrefix(name, "rsa-")
	})
	return len(k.algorithms) > 0 && len(k.algorithms) < before // without a key of the rest, nothing is excluded
}
