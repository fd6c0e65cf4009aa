package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// Realm is the Kerberos realm of a [KDC].
const Realm = "STAGER.TEST"

// KDC is a running Kerberos server: MIT's, with a database of its own. Its principals
// must authenticate before they get a ticket, as Active Directory asks it of all.
type KDC struct {
	Address string // host:port, by TCP
	Conf    string // the krb5.conf of its clients

	daemon
	temp  *temp
	dir   string // the same
	shift string // of its clock, as libfaketime takes it
}

// StartKDC makes a realm and starts its server on a free port of this machine. It
// needs what [Install] installs for smb and hdfs.
func StartKDC(ctx context.Context, log io.Writer) (k *KDC, err error) {
	if err := kdcMissing(); err != nil {
		return nil, notHere("hdfs", err)
	}
	k = &KDC{}
	defer closeUnlessStarted(&k, &err)
	if k.temp, err = makeTemp("kdc"); err != nil {
		return k, err
	}
	k.dir = k.temp.path
	if k.Address, err = ports.Free(localhost); err != nil {
		return k, err
	}
	k.Conf = filepath.Join(k.dir, "krb5.conf")
	if err := errors.Join(
		os.WriteFile(k.Conf, fmt.Appendf(nil, krb5Conf, Realm, k.Address), 0o644),
		os.WriteFile(filepath.Join(k.dir, "kdc.conf"), fmt.Appendf(nil, kdcConf, Realm, k.Address, k.dir), 0o600),
	); err != nil {
		return k, err
	}
	if err := k.run(ctx, "kdb5_util", "create", "-s", "-r", Realm, "-P", rand.Text()); err != nil {
		return k, err
	}
	k.daemon = daemon{name: "krb5kdc at " + k.Address, command: k.server, answers: takesConnections(k.Address), log: log}
	return k, k.Start(ctx)
}

const krb5Conf = `[libdefaults]
 default_realm = %[1]s
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 %[1]s = {
  kdc = %[2]s
 }
`

const kdcConf = `[kdcdefaults]
 kdc_listen = ""
 kdc_tcp_listen = %[2]s
[realms]
 %[1]s = {
  database_name = %[3]s/principal
  key_stash_file = %[3]s/stash
  acl_file = %[3]s/acl
  max_life = 1d
  max_renewable_life = 7d
  supported_enctypes = aes256-cts:normal aes128-cts:normal
  default_principal_flags = +preauth
  disable_pac = true
 }
`

func (k *KDC) server() *exec.Cmd {
	cmd := k.tool(context.Background(), "krb5kdc", "-n", "-P", filepath.Join(k.dir, "pid"))
	if k.shift != "" {
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+fakeTime(), "FAKETIME="+k.shift)
	}
	return cmd
}

// Shift starts the server again with a clock that is wrong by so much, such as "+1h";
// "" sets it right.
func (k *KDC) Shift(ctx context.Context, by string) error {
	k.shift = by
	if err := k.Kill(); err != nil {
		return err
	}
	return k.Start(ctx)
}

// fakeTime is the library that shifts a process's clock; "" when there is none.
func fakeTime() string {
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1") // the pattern is a good one
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// Env are the variables by which kadmin.local and kinit find the realm.
func (k *KDC) Env() []string {
	return []string{"KRB5_CONFIG=" + k.Conf, "KRB5_KDC_PROFILE=" + filepath.Join(k.dir, "kdc.conf")}
}

// Close ends the server and forgets the realm.
func (k *KDC) Close() error {
	return errors.Join(k.stop(), k.temp.remove())
}

// Keytab makes principals with keys of their own, such as "nn/localhost", and returns
// a file with those keys. A principal that was there gets a new key.
func (k *KDC) Keytab(ctx context.Context, principals ...string) (path string, err error) {
	path = filepath.Join(k.dir, strings.ReplaceAll(principals[0], "/", "-")+".keytab")
	for _, p := range principals {
		if err := k.Admin(ctx, "addprinc -randkey "+p); err != nil {
			return "", err
		}
		if err := k.Admin(ctx, fmt.Sprintf("ktadd -k %s %s", path, p)); err != nil {
			return "", err
		}
	}
	return path, nil
}

// Admin runs a command of kadmin, such as "delprinc stager".
func (k *KDC) Admin(ctx context.Context, command string) error {
	return k.run(ctx, "kadmin.local", "-r", Realm, "-q", command)
}

// Ticket has kinit get a ticket for the first key of a keytab, with options such as
// "-l", "10s", and put it into the file cache.
func (k *KDC) Ticket(ctx context.Context, keytab, principal, cache string, options ...string) error {
	return k.run(ctx, "kinit", append(options, "-k", "-t", keytab, "-c", "FILE:"+cache, principal)...)
}

func (k *KDC) run(ctx context.Context, name string, args ...string) error {
	out, err := k.tool(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func (k *KDC) tool(ctx context.Context, name string, args ...string) *exec.Cmd {
	if path, err := find(name); err == nil { // installKDC found it
		name = path
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), k.Env()...)
	return cmd
}

// kdcMissing is nil when all is there that a realm needs.
func kdcMissing() error {
	var errs []error
	for _, program := range []string{"krb5kdc", "kadmin.local", "kinit"} {
		_, err := find(program)
		errs = append(errs, err)
	}
	if fakeTime() == "" {
		errs = append(errs, errors.New("there is no libfaketime on this machine"))
	}
	return errors.Join(errs...)
}

func installKDC(ctx context.Context, progress io.Writer) error {
	return install(ctx, progress, kdcMissing, "krb5-kdc", "krb5-admin-server", "krb5-user", "libfaketime")
}
