package servers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// CephOptions say what Ceph is wanted. The zero value works.
type CephOptions struct {
	TLS      bool
	Buckets  []string  // made before it is ready; none: one named "test"
	Versions []string  // those of them with versioning
	Log      io.Writer // what its daemons say
}

// Ceph is an S3 server as sites run it: a gateway, which is what Kill, Freeze and the
// like mean, over a monitor and an OSD, which hold the objects in memory meanwhile.
type Ceph struct {
	S3

	dir    string // where its packages are unpacked
	behind []*process
}

// cephPackages have its daemons and the programs that prepare them: ceph-base
// osdmaptool and monmaptool, ceph-common radosgw-admin.
var cephPackages = []string{"ceph-base", "ceph-common", "ceph-mon", "ceph-osd", "radosgw"}

// cephConfig is all that the daemons know: no file of /etc/ceph or /var/lib/ceph is
// looked at.
//
//   - Only this machine reaches the daemons, so they ask each other for no keys. The
//     gateway insists on an encrypted talk with the monitor, which takes keys, until
//     ms_mon_client_mode says otherwise.
//   - One OSD holds one copy of all, in one placement group a pool. Its place in the
//     map is written beforehand, so that nobody has to add it, and it must not look
//     for a better one.
//   - The monitor waits a second before each change of the map for others to come,
//     and the gateway makes seven pools: that is all that a start would wait for.
//   - Without tcp_nodelay each listing takes 40 ms more.
//   - What was replaced or deleted goes away after seconds, not two hours: it is in
//     memory, of which the store thinks that it has 16 GiB.
//   - It has one key to encrypt objects with, of no key management service.
//   - The monitor ends on a disk with less than 5 % free unless told otherwise. Its own
//     data is a few megabytes, for which there is room on a disk that is nearly full.
const cephConfig = `[global]
fsid = %[1]s
mon host = v2:%[2]s
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind msgr1 = false
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc

plugin dir = %[4]s/ceph
osd class dir = %[4]s/rados-classes
erasure code dir = %[4]s/ceph/erasure-code
mon data = %[3]s/mon
osd data = %[3]s/osd
rgw data = %[3]s
run dir = %[3]s
crash dir = %[3]s
admin socket =
log file =
mon cluster log file =
log to stderr = true
err to stderr = true
debug rocksdb = 0/0

osd objectstore = memstore
memstore device bytes = 17179869184
osd crush update on start = false
osd crush chooseleaf type = 0
mon allow pool size one = true
mon data avail crit = 0
mon data avail warn = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
rgw rados pool pg num min = 1
paxos propose interval = 0.02

rgw crypt s3 kms backend = testing
rgw crypt s3 kms encryption keys = stager-test=c3RhZ2VyIHRlc3Qga2V5IG9mIDMyIGJ5dGVzIC4uLi4=
rgw frontends = beast %[5]s tcp_nodelay=1
rgw gc obj min wait = 10
rgw gc processor period = 10
rgw gc processor max time = 10
`

// StartCeph starts a Ceph on free ports of this machine and returns when it answers,
// in about a second. It needs what [Install] fetches, and no root.
func StartCeph(ctx context.Context, opts CephOptions) (c *Ceph, err error) {
	dir, err := unpackedAt(cephPackages)
	if err != nil {
		return nil, err
	}
	if !isUnpacked(dir) {
		return nil, notHere("s3", errors.New("there is no Ceph on this machine"))
	}
	c = &Ceph{dir: dir, S3: S3{Region: "us-east-1", Buckets: append(opts.Buckets, opts.Versions...)}}
	if len(c.Buckets) == 0 {
		c.Buckets = []string{"test"}
	}
	defer closeUnlessStarted(&c, &err)
	if c.temp, err = makeTemp("ceph"); err != nil {
		return c, err
	}
	if err := c.configure(ctx, opts); err != nil {
		return c, err
	}
	for _, args := range [][]string{{"ceph-mon", "-f", "-i", "a"}, {"ceph-osd", "-f", "-i", "0"}} {
		p, err := start(c.command(args...), opts.Log)
		if err != nil {
			return c, err
		}
		c.behind = append(c.behind, p)
	}
	if err := c.makeUser(ctx); err != nil {
		return c, err
	}
	c.daemon = daemon{name: "the gateway of Ceph at " + c.Endpoint, log: opts.Log, answers: c.answersAt("/"), command: func() *exec.Cmd {
		return c.command("radosgw", "-f", "-n", "client.admin")
	}}
	if err := c.Start(ctx); err != nil {
		return c, err
	}
	return c, c.makeBuckets(ctx, opts.Versions)
}

// configure writes the configuration, the maps, and what the daemons find when they
// first start.
func (c *Ceph) configure(ctx context.Context, opts CephOptions) error {
	dir := c.temp.path
	monitor, err := ports.Free(localhost)
	if err != nil {
		return err
	}
	address, err := ports.Free(localhost)
	if err != nil {
		return err
	}
	c.Endpoint = "http://" + address
	frontend := "endpoint=" + address
	if opts.TLS {
		ca, cert, key, err := certificate(dir)
		if err != nil {
			return err
		}
		c.Endpoint, c.CAFile = "https://"+address, ca
		frontend = fmt.Sprintf("ssl_endpoint=%s ssl_certificate=%s ssl_private_key=%s", address, cert, key)
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		return err
	}
	fsid := strings.TrimSpace(string(id))
	libraries := c.libraries()
	text := fmt.Sprintf(cephConfig, fsid, monitor, dir, libraries[len(libraries)-1], frontend)
	if err := os.WriteFile(filepath.Join(dir, "ceph.conf"), []byte(text), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"monmaptool", "--create", "--fsid", fsid, "--addv", "a", "[v2:" + monitor + "]", "monmap"},
		{"osdmaptool", "osdmap", "--createsimple", "1"},
		{"ceph-mon", "--mkfs", "-i", "a", "--monmap", "monmap", "--osdmap", "osdmap"},
		{"ceph-osd", "--mkfs", "-i", "0", "--no-mon-config"},
	} {
		if args[1] == "--mkfs" {
			if err := os.Mkdir(filepath.Join(dir, strings.TrimPrefix(args[0], "ceph-")), 0o755); err != nil {
				return err
			}
		}
		if out, err := c.command(args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return ctx.Err()
}

// libraries are the directories that programs need on their path; plugins lie below the
// last.
func (c *Ceph) libraries() []string {
	var dirs []string
	for _, pattern := range []string{"lib/*-linux-gnu*", "usr/lib/*-linux-gnu*/ceph", "usr/lib/*-linux-gnu*"} {
		found, _ := filepath.Glob(filepath.Join(c.dir, pattern)) // the pattern is good
		dirs = append(dirs, found...)
	}
	return dirs
}

// command is a program of Ceph, in the cluster's directory.
func (c *Ceph) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.dir, "usr", "bin", args[0]), args[1:]...)
	cmd.Dir = c.temp.path
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(c.libraries(), ":"), "CEPH_CONF="+filepath.Join(c.temp.path, "ceph.conf"))
	return cmd
}

// makeUser makes the one to whom the buckets belong. It waits for the cluster.
func (c *Ceph) makeUser(ctx context.Context) error {
	var out strings.Builder
	p, err := start(c.command("radosgw-admin", "user", "create", "--uid=stager-test", "--display-name=stager-test"), &out)
	if err != nil {
		return err
	}
	err = until(ctx, "the monitor or the OSD of Ceph", startWithin, func(context.Context) error {
		select {
		case <-p.done:
			return nil
		default:
			return errors.New("the program that makes its user still waits")
		}
	}, c.behind...)
	if err != nil {
		return errors.Join(err, p.kill())
	}
	failed := func(err error) error { return fmt.Errorf("the user of Ceph cannot be made: %w\n%s", err, out.String()) }
	if p.err != nil {
		return failed(p.err)
	}
	var user struct {
		Keys []struct {
			Access string `json:"access_key"`
			Secret string `json:"secret_key"`
		}
	}
	_, text, _ := strings.Cut("\n"+out.String(), "\n{") // before it they may say more
	if err := json.NewDecoder(strings.NewReader("{" + text)).Decode(&user); err != nil || len(user.Keys) == 0 {
		return failed(cmp.Or(err, errors.New("it has no key")))
	}
	c.AccessKey, c.SecretKey = user.Keys[0].Access, user.Keys[0].Secret
	return nil
}

// Close ends all daemons. What they held goes with them, so none of them is asked
// to put it away.
func (c *Ceph) Close() error {
	errs := []error{c.Kill()}
	for _, p := range c.behind {
		errs = append(errs, p.kill())
	}
	return errors.Join(append(errs, c.temp.remove())...)
}
