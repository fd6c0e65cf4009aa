package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

// farTrip is what is added to S3, as a store in another region has it.
const farTrip = 20 * time.Millisecond

// goals are the rows that have goals, beside s5cmd, with a server that costs little. The
// data of a row are made when it is first run, in place of those of the row before, so
// that memory has room for both them and what is got.
func goals(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	size, files := lab.Data.Size, lab.Data.Files
	large := Data{Size: 4 * size}
	small := Data{Files: 10 * files, FileSize: 50 << 10}
	client, s, end, err := startFileServer(ctx, lab, "goals", servers.StartQuick, 2*large.Size+size) // for what is there and what comes
	if err != nil {
		return nil, "", nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end.all())
		}
	}()
	disk, err := newDisk(ctx, lab, max(large.Size, small.Files*small.FileSize))
	if err != nil {
		return nil, "", nil, err
	}
	end = append(end, disk.close)
	if err := disk.measure(ctx, large.Size); err != nil {
		return nil, "", nil, err
	}
	note = quickNote + "; s5cmd 2.3.0; the disk is " + disk.what
	delay, err := servers.StartDelay(strings.TrimPrefix(s.server.Endpoint, "http://"), farTrip)
	if err != nil {
		return nil, "", nil, err
	}
	end = append(end, delay.Close)

	memory := s.site(lab, client, "s3, quick, memory", s.server.Endpoint, lab.Dir)
	onDisk := s.site(lab, client, "s3, quick, disk", s.server.Endpoint, disk.path)
	onDisk.floor.large = 0 // the disk is the floor
	far := s.site(lab, client, fmt.Sprintf("s3, quick, %v away", farTrip), "http://"+delay.Address, lab.Dir)
	far.floor.small = 256
	return []Row{
		s.row(memory.reading, large, Goal{Ratio: 2.2, PerGB: 0.75}),
		s.row(onDisk.reading, large, disk.goal(1.2, 2.6)),
		s.row(onDisk.reading, Data{Files: 64, FileSize: size / 16}, disk.goal(1.3, 1.8)),
		s.row(memory.reading, small, Goal{Ratio: 3, PerFile: 70 * time.Microsecond}),
		s.row(onDisk.reading, small, Goal{Ratio: 2.3}),
		s.row(memory.writing, Data{Size: 2 * size}, Goal{Ratio: 5, PerGB: 0.4}),
		s.row(memory.writing, Data{Files: 5 * files, FileSize: 20 << 10}, Goal{Ratio: 5}),
		s.row(far.reading, Data{Files: 5 * files, FileSize: 50 << 10}, Goal{Ratio: 3}),
	}, note, end.all, nil
}

// secure are the rows that have goals over HTTPS.
func secure(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	size, files := lab.Data.Size, lab.Data.Files
	large := Data{Size: 4 * size}
	small := Data{Files: 10 * files, FileSize: 50 << 10}
	client, s, end, err := startFileServer(ctx, lab, "https", servers.StartQuickTLS, 2*large.Size+size)
	if err != nil {
		return nil, "", nil, err
	}
	delay, err := servers.StartDelay(strings.TrimPrefix(s.server.Endpoint, "https://"), farTrip)
	if err != nil {
		return nil, "", nil, errors.Join(err, end.all())
	}
	end = append(end, delay.Close)

	memory := s.site(lab, client, "s3, quick, https", s.server.Endpoint, lab.Dir)
	far := s.site(lab, client, fmt.Sprintf("s3, quick, https, %v away", farTrip), "https://"+delay.Address, lab.Dir)
	far.floor.small = 256
	return []Row{
		s.row(memory.reading, large, Goal{Ratio: 1.6, PerGB: 0.8}),
		s.row(memory.reading, small, Goal{Ratio: 7.6, PerGB: 3}),
		s.row(memory.writing, Data{Size: 2 * size}, Goal{Ratio: 3.5, PerGB: 0.8}),
		s.row(far.reading, Data{Files: 5 * files, FileSize: 50 << 10}, Goal{}), // it has the most connections with TLS
	}, "a server of files with TLS, small ones from memory, in the process that measures; s5cmd 2.3.0", end.all, nil
}

// fixture is a server with one kind of data at a time.
type fixture struct {
	dir    string // that it serves
	server *servers.Quick
	kind   Data // what lies there
}

// startFileServer starts the server of a suite and keeps so many bytes of memory for the suite.
// client is the path of s5cmd, or "" with Lab.NoPeers. On success the caller calls end.all.
func startFileServer(ctx context.Context, lab *Lab, suite string, start func(dir, bucket string) (*servers.Quick, error), memory int64) (client string, s *fixture, end stops, err error) {
	if !lab.NoPeers {
		if client, err = peer(ctx, "s5cmd", "github.com/peak/s5cmd/v2", lab.Log); err != nil {
			return "", nil, nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end.all())
		}
	}()
	release, err := keepMemory(ctx, memory)
	if err != nil {
		return "", nil, nil, err
	}
	end = append(end, release)
	s = &fixture{dir: filepath.Join(lab.Dir, suite)}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return "", nil, end, err
	}
	end = append(end, func() error { return os.RemoveAll(s.dir) })
	if s.server, err = start(s.dir, "bench"); err != nil {
		return "", nil, end, err
	}
	end = append(end, s.server.Close)
	return client, s, end, nil
}

// site is what the server has below an endpoint, beside s5cmd. to is the directory for downloads.
func (s *fixture) site(lab *Lab, client, name, endpoint, to string) *site {
	env := append(s.server.Env(), "AWS_ENDPOINT_URL="+endpoint)
	s5cmd := copier(client, endpoint, env)
	return &site{
		lab: lab, name: name, url: "s3://bench/", env: env, to: to, peer: "s5cmd",
		get:    func(from, to string) *exec.Cmd { return s5cmd("s3://bench/"+from+"/*", to+"/") },
		put:    func(from, to string) *exec.Cmd { return s5cmd(from+"/", "s3://bench/"+to+"/") },
		remove: func(directory string) error { s.server.Drop(directory + "/"); return nil },
		floor:  floorOf{url: endpoint + "/bench/", ca: s.server.CAFile, large: 2, small: 8},
	}
}

// row is one that moves data of a kind, which are there when it begins.
func (s *fixture) row(move func(set) Row, kind Data, goal Goal) Row {
	moved := kind.in(s.dir).one()
	if kind.Files > 0 {
		moved = kind.in(s.dir).many()
	}
	row := move(moved)
	if row.Peer != otherStager { // beside which there is no goal
		row.Goal = goal
	}
	if !row.HasGoal() {
		row.Floor = nil
	}
	reset := row.Reset
	row.Reset = func(ctx context.Context) error {
		if err := s.hold(kind); err != nil {
			return err
		}
		return reset(ctx)
	}
	return row
}

// hold has the server serve data of a kind, and no others.
func (s *fixture) hold(kind Data) error {
	if s.kind == kind {
		return nil
	}
	s.kind = Data{}
	if err := os.RemoveAll(s.dir); err != nil {
		return err
	}
	if _, err := MakeData(s.dir, kind.Size, kind.Files, kind.FileSize); err != nil {
		return err
	}
	s.kind = kind
	return s.server.Find()
}

// fileSystem is the name of that of a directory.
func fileSystem(directory string) string {
	out, err := exec.Command("df", "--output=fstype", directory).Output() //nolint:noctx // it says two lines and ends
	if words := strings.Fields(string(out)); err == nil && len(words) > 0 {
		return words[len(words)-1]
	}
	return "of a file system that is not known"
}
