package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/e2e/servers"
)

// What the rows of the suite "disks" differ in: the file system, the rate of the device in
// GB/s, 0 for as fast as it is, the memory limit in MiB, 0 for none, and whether the data
// are synced.
var (
	diskKinds  = []string{"ext4", "xfs"}
	diskRates  = []float64{0.2, 0.5, 1, 2, 0}
	diskLimits = []int64{0, 256, 64}
)

// atLeast is what "write: auto" must reach beside each of the fixed ways.
const atLeast = 0.95

// disks gets files to devices of several rates: with "--write auto" beside the two fixed
// ways and beside s5cmd. Devices are loop devices held at a rate by the control group
// hierarchy blkio of version 1, and memory is limited by its hierarchy memory.
func disks(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	if lab.NoPeers {
		return nil, "", nil, errors.New("another stager cannot take the place of the peers")
	}
	size := lab.Data.Size
	client, s, end, err := startFileServer(ctx, lab, "disks", servers.StartQuick, 3*size)
	if err != nil {
		return nil, "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end.all())
		}
	}()
	for _, kind := range diskKinds {
		device, close, err := newThrottled(ctx, lab, kind, size)
		if err != nil && kind != diskKinds[0] {
			fmt.Fprintf(lab.Log, "no rows for %s: %v\n", kind, err)
			continue
		}
		if err != nil {
			return nil, "", nil, err
		}
		end = append(end, close)
		rows = append(rows, device.rows(lab, s, client)...)
	}
	return rows, quickNote + "; s5cmd 2.3.0; loop devices", end.all, nil
}

// rows are those of one device, xfs only without a limit.
func (d *throttled) rows(lab *Lab, s *fixture, client string) (rows []Row) {
	size := lab.Data.Size
	for _, rate := range diskRates {
		for _, limit := range diskLimits {
			if d.kind != diskKinds[0] && limit > 0 {
				continue
			}
			for _, synced := range []bool{false, true} {
				c := diskCell{d, s, client, rate, limit, synced}
				rows = append(rows, c.row(lab, Data{Files: 16, FileSize: size / 16}), c.row(lab, Data{Size: size}))
			}
		}
	}
	return rows
}

// throttled is a file system on a device that is held at a rate.
type throttled struct {
	kind   string
	path   string
	device string // "7:0"
}

// blkio is where a device is held.
const blkio = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device"

func newThrottled(ctx context.Context, lab *Lab, kind string, size int64) (d *throttled, closed func() error, err error) {
	dir, err := os.MkdirTemp(lab.Disk, "stager-bench-")
	if err != nil {
		return nil, nil, err
	}
	root, err := mountFile(ctx, dir, kind, size+size/8+128<<20) // a journal and inodes
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return nil, nil, errors.Join(err, root.Close(), os.RemoveAll(dir))
	}
	d = &throttled{kind, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), root.Fd()), fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))}
	return d, func() error { return errors.Join(d.hold(0), root.Close(), os.RemoveAll(dir)) }, nil
}

// hold holds the device at a rate in GB/s; 0 lets it go.
func (d *throttled) hold(rate float64) error {
	return os.WriteFile(blkio, fmt.Appendf(nil, "%s %d", d.device, int64(rate*1e9)), 0)
}

// diskCell is one combination.
type diskCell struct {
	on      *throttled
	fixture *fixture
	client  string
	rate    float64
	limit   int64
	synced  bool
}

func (c diskCell) String() string {
	name := c.on.kind + ", unthrottled"
	if c.rate > 0 {
		name = fmt.Sprintf("%s, %v GB/s", c.on.kind, c.rate)
	}
	if c.limit > 0 {
		name += fmt.Sprintf(", %d MiB of memory", c.limit)
	}
	if c.synced {
		name += ", synced"
	}
	return name
}

func (c diskCell) row(lab *Lab, kind Data) Row {
	env := append(c.fixture.server.Env(), "AWS_ENDPOINT_URL="+c.fixture.server.Endpoint)
	s5cmd := copier(c.client, c.fixture.server.Endpoint, env)
	at := &site{
		lab: lab, name: "quick, " + c.String(), url: "s3://bench/", env: env, to: c.on.path, peer: "s5cmd",
		get: func(from, to string) *exec.Cmd {
			return c.limited(c.sync(s5cmd("s3://bench/"+from+"/*", to+"/"), to))
		},
	}
	moved := "one"
	if kind.Files > 0 {
		moved = "many"
	}
	row := c.fixture.row(at.reading, kind, Goal{})
	to := ""
	reset := row.Reset
	row.Reset = func(ctx context.Context) error {
		if err := firstOf(c.on.hold(0), reset(ctx), c.on.hold(c.rate)); err != nil {
			return err
		}
		to = filepath.Join(c.on.path, "run-"+strconv.Itoa(lab.runs))
		return c.group()
	}
	as := func(how string) Command {
		return func() *exec.Cmd {
			args := []string{"prefetch", "--quiet", "--write", how, at.at(moved), to}
			if c.synced {
				args = append(args, "--sync")
			}
			return c.limited(at.stager(args...))
		}
	}
	row.Ours = as("auto")
	row.Rivals = []Rival{{"stager, direct", as("direct"), Goal{Ratio: atLeast}}, {"stager, buffered", as("buffered"), Goal{Ratio: atLeast}}}
	if c.limit > 0 && c.limit < peerMemory {
		row.Peer, row.Theirs, row.Goal, row.Rivals = row.Rivals[0].Peer, row.Rivals[0].Command, row.Rivals[0].Goal, row.Rivals[1:]
	}
	return row
}

// peerMemory is the memory limit in MiB below which the kernel kills s5cmd in most runs.
const peerMemory = 128

// sync has a command end with a sync of what it wrote, if all are to.
func (c diskCell) sync(cmd *exec.Cmd, dir string) *exec.Cmd {
	if !c.synced {
		return cmd
	}
	return c.shell(cmd, `"$@" && exec sync -f "$0"`, dir)
}

// groupDir is the control group of commands whose memory is limited.
const groupDir = "/sys/fs/cgroup/memory/stager-bench"

// group makes the control group anew, so that no page of an earlier run counts.
func (c diskCell) group() error {
	if c.limit == 0 {
		return nil
	}
	if err := os.Remove(groupDir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return firstOf(os.Mkdir(groupDir, 0o755), os.WriteFile(filepath.Join(groupDir, "memory.limit_in_bytes"), fmt.Appendf(nil, "%d", c.limit<<20), 0))
}

// limited has a command run in the control group.
func (c diskCell) limited(cmd *exec.Cmd) *exec.Cmd {
	if c.limit == 0 {
		return cmd
	}
	return c.shell(cmd, `echo $$ > "$0"/cgroup.procs && exec "$@"`, groupDir)
}

// shell has a shell run a script whose $0 is word and whose arguments are the command.
func (c diskCell) shell(cmd *exec.Cmd, script, word string) *exec.Cmd {
	outer := exec.Command("/bin/sh", append([]string{"-c", script, word}, cmd.Args...)...) //nolint:noctx // measure runs it
	outer.Args[3+1] = cmd.Path
	outer.Env, outer.Dir = cmd.Env, cmd.Dir
	return outer
}
