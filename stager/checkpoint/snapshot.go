package checkpoint

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
	"github.com/stager-dev/stager/window/disk"
)

// snapshotsName is where snapshots lie, in the output directory.
const snapshotsName = private + "/snap"

// A snapshot is a complete checkpoint held fast until it is shipped, by hard links, or by
// copies that share their blocks where its name is likely to be used again.
// It is on the disk as <snapshotsName>/<ID>/: snapshot.json, the journal sent, and data/.
type snapshot struct {
	ID        string    `json:"id"` // also that of its data in the store
	Step      int64     `json:"step"`
	Name      string    `json:"name"` // in the output directory
	Samples   int64     `json:"samplesSeen,omitempty"`
	Committed bool      `json:"said,omitempty"`    // by Commit: shipped whatever When says
	InPlace   bool      `json:"inPlace,omitempty"` // links were refused
	Complete  time.Time `json:"complete"`
	Evidence  string    `json:"evidence,omitempty"` // what says that it is complete
	// Provisional says that only a quiet period completed it.
	Provisional bool `json:"provisional,omitempty"`

	Files []local `json:"files"`
	Held  []local `json:"held,omitempty"` // the state of the copies; nil: there are links only

	Metrics map[string]float64 `json:"metrics,omitempty"`
	Cursors Cursors            `json:"cursors,omitempty"`

	// Of several nodes: where its files belong, how often the step was written there, which
	// files of that writing it has, and how this node knows that it is complete.
	View    string     `json:"view,omitempty"`
	Round   int        `json:"round,omitempty"`
	Writing int        `json:"writing,omitempty"`
	Edition int        `json:"edition,omitempty"`
	Sign    group.Sign `json:"sign,omitempty"`

	reported  bool      // the other nodes may be asked to save it
	abandoned time.Time // when it was complete, if it is refused since it was abandoned; see failure
	refused   error     // why the destination does not take it as things are; it is held until somebody decides
	print     string    // the fingerprint of Files
}

// snapshotDir keeps the snapshots of one output directory.
type snapshotDir struct {
	root     *os.Root
	hardLink func(oldname, newname string) error // of root; some file systems refuse
	clone    func(to, from *os.File) error       // makes to share all blocks of from
	free     func(*os.Root) (int64, error)       // bytes on its file system
	log      *slog.Logger
}

// held is the state of the files that are sent.
func (snap *snapshot) held() []local {
	if snap.Held != nil {
		return snap.Held
	}
	return snap.Files
}

// newID names an upload.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

func (s *snapshotDir) dir(snap *snapshot) string { return path.Join(snapshotsName, snap.ID) }

// take links the files aside that snap names, and puts it on the shelf. The error
// is errChanged when they are no longer those that were listed.
func (s *snapshotDir) take(snap *snapshot) (err error) {
	snap.ID, snap.print = newID(), fingerprint(snap.Files)
	dir := path.Join(snapshotsName, "new-"+snap.ID)
	if err := s.root.MkdirAll(dir+"/"+dataDir, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = s.root.RemoveAll(dir) // swept at the next start
		}
	}()
	copied, err := s.hold(snap, dir+"/"+dataDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return changed(snap.Name)
	case errors.Is(err, errChanged), errors.As(err, new(*copyError)), errors.As(err, new(*unreadableError)):
		return err
	case isFull(err) && snap.Committed:
		return &backends.Error{Op: "hold", Key: snap.Name, Kind: backends.NoSpace, Err: err}
	case err != nil && snap.Committed && !refusesLinks(err):
		return err // whoever commits removes the files next
	case err != nil:
		s.log.Warn("hard links are refused, and there is no room for copies, so this checkpoint is read in place: it must stay until it is saved",
			"checkpoint", snap.Name, "error", err)
		snap.InPlace = true
		if err := s.root.RemoveAll(dir + "/" + dataDir); err != nil {
			return err
		}
	default:
		linked, err := s.root.OpenRoot(dir + "/" + dataDir)
		if err != nil {
			return err
		}
		defer linked.Close() // it is only read through
		if copied {
			snap.Held, err = stateOf(linked, snap.Files)
		} else {
			err = same(linked, snap.Files)
		}
		if err != nil {
			return err
		}
	}
	return s.adopt(snap, dir)
}

// adopt makes what is held in dir the files of a snapshot.
func (s *snapshotDir) adopt(snap *snapshot, dir string) error {
	text, err := json.Marshal(snap)
	if err != nil {
		return err
	}
	if err := s.writeSynced(dir+"/snapshot.json", text); err != nil {
		return err
	}
	if err := s.syncLinks(snap, dir); err != nil {
		return err
	}
	if err := s.root.Rename(dir, s.dir(snap)); err != nil {
		return err
	}
	// The trainer may remove its files from here on: the links must not be lost with power.
	return syncNames(s.root, snapshotsName, private, ".")
}

// refusesLinks reports whether an error is that of a file system, or a rule, without links,
// and not one of the disk.
func refusesLinks(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) ||
		errors.Is(err, unix.EMLINK) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL)
}

// syncLinks returns when the disk has the names in the directory of a new snapshot.
func (s *snapshotDir) syncLinks(snap *snapshot, dir string) error {
	if snap.InPlace {
		return syncNames(s.root, dir)
	}
	paths := make([]string, len(snap.Files))
	for i, f := range snap.Files {
		paths[i] = f.Path
	}
	return syncNames(s.root, append(dirsOf(dir+"/"+dataDir, paths), dir)...)
}

// writeSynced writes a small new file and waits until the disk has it: after a power loss
// a snapshot without its description could not be used.
func (s *snapshotDir) writeSynced(name string, text []byte) error {
	file, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// hold links every file of the snapshot to the same path below data. Links are of
// symbolic links themselves, which lead to the same place below data.
//
// A name without a number, such as last.pt, is likely to be overwritten in place, and a
// link would change with it. Its files are copied, by sharing blocks where the file system
// can. Other names are not: a copy is read from the disk, and a link from the page cache.
func (s *snapshotDir) hold(snap *snapshot, data string) (copied bool, err error) {
	from := snap.Name
	info, err := s.root.Lstat(snap.Name)
	directory := err == nil && info.IsDir()
	if !directory {
		from = path.Dir(snap.Name) // if it is a group of files, and has not gone
	}
	_, numbered := stepOf(snap.Name, directory)
	for i, f := range snap.Files {
		if err := s.root.MkdirAll(path.Dir(path.Join(data, f.Path)), 0o700); err != nil {
			return false, err
		}
		old, name := path.Join(from, f.Path), path.Join(data, f.Path)
		if !numbered {
			done, err := s.copyFile(old, name, f, totalSize(snap.Files[i:]))
			if err != nil {
				return false, err
			}
			if copied = copied || done; done {
				continue
			}
		}
		err := s.hardLink(old, name)
		if err != nil && refusesLinks(err) {
			var done bool
			done, err = s.instead(old, name, f, totalSize(snap.Files[i:]), err)
			copied = copied || done
		}
		if err != nil {
			return false, err
		}
	}
	return copied, nil
}

// stateOf is the state of the files below root, which are links or copies of those listed.
func stateOf(root *os.Root, files []local) (state []local, err error) {
	for _, f := range files {
		info, err := root.Stat(f.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, changed(f.Path)
		}
		if err != nil {
			return nil, err
		}
		now := describe(f.Path, info)
		now.Mode = f.Mode
		if now.Size != f.Size || now.MTime != f.MTime {
			return nil, changed(f.Path)
		}
		state = append(state, now)
	}
	return state, nil
}

// same tells by errChanged when the files below root are not those listed.
func same(root *os.Root, files []local) error {
	for _, f := range files {
		info, err := root.Stat(f.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return changed(f.Path)
		}
		if err != nil {
			return err
		}
		now := describe(f.Path, info)
		if now.Mode = f.Mode; now != f {
			return changed(f.Path)
		}
	}
	return nil
}

// rewrite writes the description of a snapshot anew.
func (s *snapshotDir) rewrite(snap *snapshot) {
	text, err := json.Marshal(snap)
	if err == nil {
		err = disk.ReplaceSmall(s.root, s.dir(snap)+"/snapshot.json", text, 0o600, true)
	}
	if err != nil {
		s.log.Warn("a snapshot cannot be described anew", "step", snap.Step, "error", err)
	}
}

// open opens a snapshot for reading.
func (s *snapshotDir) open(snap *snapshot) (tree, error) {
	if snap.InPlace {
		return openTree(s.root, snap.Name)
	}
	root, err := s.root.OpenRoot(s.dir(snap) + "/" + dataDir)
	return tree{root: root}, err
}

// journal is what remembers which files of the snapshot have arrived.
func (s *snapshotDir) journal(snap *snapshot) *journal {
	return openJournal(s.root, s.dir(snap)+"/sent")
}

// drop lets the files go.
func (s *snapshotDir) drop(snap *snapshot) {
	if err := s.root.RemoveAll(s.dir(snap)); err != nil {
		s.log.Warn("a snapshot is left behind and takes space", "directory", s.dir(snap), "error", err)
	}
}

// left returns the whole snapshots that an earlier process left, and sweeps the rest.
// A snapshot that cannot be read now is an error, and stays: it may be the only copy of
// a checkpoint that the trainer has removed.
func (s *snapshotDir) left() ([]*snapshot, error) {
	if err := s.root.MkdirAll(snapshotsName, 0o700); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(disk.FS(s.root), snapshotsName)
	if err != nil {
		return nil, err
	}
	var snaps []*snapshot
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), earlyPrefix) {
			continue // see recallEarly
		}
		if !e.IsDir() && !uploadID.MatchString(e.Name()) {
			s.log.Warn("another program put a file among the snapshots; it is left alone", "file", path.Join(snapshotsName, e.Name()))
			continue
		}
		snap, err := s.read(e.Name())
		if err != nil && isLocal(err) && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("a checkpoint that waits to be saved cannot be read, and nothing was changed: %w", err)
		}
		if err != nil {
			s.log.Warn("a snapshot of an earlier process cannot be used", "directory", e.Name(), "error", err)
			if err := s.root.RemoveAll(path.Join(snapshotsName, e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		snaps = append(snaps, snap)
	}
	return snaps, nil
}

// mostSnapshot bounds what is read of a snapshot's description.
const mostSnapshot = 256 << 20

func (s *snapshotDir) read(name string) (*snapshot, error) {
	if strings.HasPrefix(name, "new-") {
		return nil, errors.New("it was not finished")
	}
	description := path.Join(snapshotsName, name, "snapshot.json")
	text, err := disk.ReadSmall(s.root, description, mostSnapshot)
	if odd := new(disk.NotRegularError); errors.As(err, &odd) {
		err = &fs.PathError{Op: "read", Path: description, Err: err} // an error of the disk, which deletes nothing
	}
	if err != nil {
		return nil, err
	}
	snap := new(snapshot)
	if err := json.Unmarshal(text, snap); err != nil {
		return nil, err
	}
	if snap.ID != name || !uploadID.MatchString(name) {
		return nil, errors.New("it is not named after its id")
	}
	snap.print = fingerprint(snap.Files)
	t, err := s.open(snap)
	if err != nil {
		return nil, err
	}
	defer t.close()
	return snap, same(t.root, snap.held())
}
