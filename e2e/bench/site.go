package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// site is a store that holds Data in directories "one" and "many", and the four rows that
// every store has: both, to and fro.
type site struct {
	lab   *Lab
	name  string
	url   string   // of the store, ending in "/"
	query string   // of the URL: "?vers=4.1", or ""
	env   []string // by which stager finds the store
	dir   string   // where the server keeps files as they are; "" if it does not
	to    string   // where what is got comes to stand; "": at lab.To

	peer string // the other client
	// get copies the store's directory from into to, which is there; put copies the local
	// directory from into the store's directory to, which is not there.
	get, put func(from, to string) *exec.Cmd
	remove   func(directory string) error // removes a directory of the store; nil where it may go from dir

	floor floorOf
}

// stager is a command of ours.
func (s *site) stager(args ...string) *exec.Cmd { return s.by(s.lab.Stager, args...) }

func (s *site) by(stager string, args ...string) *exec.Cmd {
	cmd := exec.Command(stager, args...) //nolint:noctx // measure runs it
	cmd.Env = append(os.Environ(), s.env...)
	return cmd
}

// otherStager is the peer that is Lab.Other.
const otherStager = "the other stager"

// beside is a row with the other stager as a rival, if there is one, or as the only peer with
// Lab.NoPeers.
func (s *site) beside(row Row, args func() []string) Row {
	row.Ours = func() *exec.Cmd { return s.stager(args()...) }
	if s.lab.Other == "" {
		return row
	}
	other := Rival{Peer: otherStager, Command: func() *exec.Cmd { return s.by(s.lab.Other, args()...) }}
	if s.lab.NoPeers {
		row.Peer, row.Theirs = other.Peer, other.Command
	} else {
		row.Rivals = []Rival{other}
	}
	return row
}

func (s *site) at(directory string) string { return s.url + directory + "/" + s.query }

// load brings Data to the store.
func (s *site) load() error {
	for directory, from := range map[string]string{"one": s.lab.Data.One, "many": s.lab.Data.Many} {
		if err := quietly(s.stager("push", "--quiet", from, s.at(directory))); err != nil {
			return err
		}
	}
	return nil
}

// rows are those of both kinds of data.
func (s *site) rows() []Row {
	one, many := s.lab.Data.one(), s.lab.Data.many()
	return []Row{s.reading(one), s.writing(one), s.reading(many), s.writing(many)}
}

// readings are the rows of a store that is only read.
func (s *site) readings() []Row {
	return []Row{s.reading(s.lab.Data.one()), s.reading(s.lab.Data.many())}
}

// reading has a directory of its own for each run, since some file systems make files slowly
// where others have just been removed, and begins when nothing is left to be written.
func (s *site) reading(d set) Row {
	to := ""
	return s.beside(Row{
		Store: s.name, Work: "get " + d.what, Peer: s.peer, Bytes: d.bytes, Files: d.files,
		Reset: func(context.Context) error {
			to = filepath.Join(cmp.Or(s.to, s.lab.To), s.fresh())
			return firstOf(os.Mkdir(to, 0o755), written(to))
		},
		Theirs: func() *exec.Cmd { return s.get(d.name, to) },
		Floor:  s.floor.command(d, d.name, &to, true),
		Check: func(context.Context) error {
			if err := equal(to, d.dir); err != nil {
				return err
			}
			return os.RemoveAll(to)
		},
	}, func() []string { return []string{"prefetch", "--quiet", s.at(d.name), to} })
}

// written waits until the file system of a directory has on its disk what it is to have.
func written(directory string) error {
	f, err := os.Open(directory)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// writing has a name of its own for each run, since a server that remembers names need
// not see that a directory went behind its back.
func (s *site) writing(d set) Row {
	to := ""
	return s.beside(Row{
		Store: s.name, Work: "put " + d.what, Peer: s.peer, Bytes: d.bytes, Files: d.files,
		Reset: func(context.Context) error {
			to = s.fresh()
			return nil
		},
		Theirs: func() *exec.Cmd { return s.put(d.dir, to) },
		Floor:  s.floor.command(d, "", &to, false),
		Check:  func(context.Context) error { return firstOf(s.holds(to, d.dir), s.drop(to)) },
	}, func() []string { return []string{"push", "--quiet", d.dir, s.at(to)} })
}

// fresh is the name of a directory that was not there before.
func (s *site) fresh() string {
	s.lab.runs++
	return fmt.Sprintf("run-%d", s.lab.runs)
}

// drop removes a directory of the store.
func (s *site) drop(directory string) error {
	if s.remove != nil {
		return s.remove(directory)
	}
	return os.RemoveAll(filepath.Join(s.dir, directory))
}

// holds compares a directory of the store with a local one. A checkpoint's files lie where
// only one save put its own.
func (s *site) holds(directory, want string) error {
	got := filepath.Join(s.dir, directory)
	if s.dir == "" {
		got = filepath.Join(s.lab.Dir, "check")
		defer os.RemoveAll(got)
		if err := firstOf(os.RemoveAll(got), quietly(s.stager("prefetch", "--quiet", s.at(directory), got))); err != nil {
			return err
		}
	}
	if saved, err := filepath.Glob(filepath.Join(got, "step-*", "data", "*")); err == nil && len(saved) == 1 {
		got = saved[0]
	}
	return equal(got, want)
}

// quietly runs a command, whose error holds what it said.
func quietly(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

func sizeOf(n int64) string {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.bytes && n%unit.bytes == 0 {
			return fmt.Sprintf("%d %s", n/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
