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

// snapshotsName is the directory of snapshots, below the output directory.
const snapshotsName = private + "/snap"

// snapshot is a complete checkpoint that is preserved until it is uploaded. It consists of hard
// links, or of copies with shared blocks where the name is likely to be reused. On disk it is
// <snapshotsName>/<ID>/ with snapshot.json, the journal sent, and data/.
type snapshot struct {
	ID        string    `json:"id"` // also the id of its data in the store
	Step      int64     `json:"step"`
	Name      string    `json:"name"` // in the output directory
	Samples   int64     `json:"samplesSeen,omitempty"`
	Committed bool      `json:"said,omitempty"`    // by Commit: uploaded regardless of When
	InPlace   bool      `json:"inPlace,omitempty"` // hard links were refused
	Complete  time.Time `json:"complete"`
	Evidence  string    `json:"evidence,omitempty"` // what indicates that it is complete
	// Provisional is set when only a quiet period or the next checkpoint indicates that it is complete.
	Provisional bool `json:"provisional,omitempty"`

	Files []local `json:"files"`
	Held  []local `json:"held,omitempty"` // state of the copies; nil: links only

	Metrics map[string]float64 `json:"metrics,omitempty"`
	Cursors Cursors            `json:"cursors,omitempty"`

	// With several nodes: the view and round of its files, how often the step was written there, which
	// files of that writing it has, and how this node knows that it is complete.
	View    string     `json:"view,omitempty"`
	Round   int        `json:"round,omitempty"`
	Writing int        `json:"writing,omitempty"`
	Edition int        `json:"edition,omitempty"`
	Sign    group.Sign `json:"sign,omitempty"`

	early     string    // directory that may have links to files which the trainer has removed; "": none
	written   time.Time // by the clock of the volume; zero: unknown
	found     int64     // how many scans of this process had begun when it was found
	reported  bool      // the other nodes may be asked to save it
	abandoned time.Time // when it was complete, if it is refused because it was abandoned; see failure
	refused   error     // why the destination refuses it for now; it is kept until somebody decides
	print     string    // the fingerprint of Files

	round *roundSeen // where Round is read; nil: Round is right
}

// snapshotDir manages the snapshots of one output directory.
type snapshotDir struct {
	root     *os.Root
	hardLink func(oldname, newname string) error // of root; some file systems refuse links
	clone    func(to, from *os.File) error       // makes the file to share all blocks of from
	free     func(*os.Root) (int64, error)       // free bytes on its file system
	log      *slog.Logger
}

// held returns the state of the files that are sent.
func (snap *snapshot) held() []local {
	if snap.Held != nil {
		return snap.Held
	}
	return snap.Files
}

// newID returns a random name for an upload.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (s *snapshotDir) dir(snap *snapshot) string { return path.Join(snapshotsName, snap.ID) }

// take creates the snapshot by linking its files. The error is errChanged when the files are no
// longer in the listed state.
func (s *snapshotDir) take(snap *snapshot) (err error) {
	snap.ID, snap.print = newID(), fingerprint(snap.Files)
	dir := path.Join(snapshotsName, "new-"+snap.ID)
	if err := s.root.MkdirAll(dir+"/"+dataDir, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = s.root.RemoveAll(dir) // the next start removes it
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
		return err // the caller may remove the files next
	case err != nil:
		s.log.Warn("the file system refuses hard links, and there is no space for copies, so this checkpoint is read in place: do not remove it until it is saved",
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
		defer linked.Close() // opened for reading
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

// adopt makes the files in dir the files of a snapshot.
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
	// The trainer may remove its files from now on, so the links must survive a power failure.
	return syncNames(s.root, snapshotsName, private, ".")
}

// refusesLinks reports whether an error means that the file system or a policy refuses hard
// links, and is not a disk error.
func refusesLinks(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) ||
		errors.Is(err, unix.EMLINK) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL)
}

// syncLinks returns when the names in the directory of a new snapshot are durable.
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

// writeSynced writes a small new file and syncs it. After a power failure, a snapshot without its
// description would be useless.
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

// hold links every file of the snapshot to the same path below data. It links symbolic links
// themselves; they point to the same relative target below data.
//
// A name without a number, such as last.pt, is likely to be overwritten in place, and a link
// would change with it. Such files are copied, with shared blocks where the file system supports
// it. Other files are linked, because a copy is read from disk and a link from the page cache.
func (s *snapshotDir) hold(snap *snapshot, data string) (copied bool, err error) {
	from := snap.Name
	info, err := s.root.Lstat(snap.Name)
	directory := err == nil && info.IsDir()
	if !directory {
		from = path.Dir(snap.Name) // for a group of files that still exists
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
		if errors.Is(err, fs.ErrNotExist) && snap.early != "" {
			err = s.hardLink(path.Join(snap.early, f.Path), name) // take compares its state
		}
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

// stateOf returns the state of the files below root, which are links to or copies of the listed
// files.
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

// same returns errChanged when the files below root differ from the listed ones.
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

// rewrite replaces the description of a snapshot.
func (s *snapshotDir) rewrite(snap *snapshot) {
	text, err := json.Marshal(snap)
	if err == nil {
		err = disk.ReplaceSmall(s.root, s.dir(snap)+"/snapshot.json", text, 0o600, true)
	}
	if err != nil {
		s.log.Warn("cannot rewrite the description of a snapshot", "step", snap.Step, "error", err)
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

// journal opens the journal of the snapshot's uploaded files.
func (s *snapshotDir) journal(snap *snapshot) *journal {
	return openJournal(s.root, s.dir(snap)+"/sent")
}

// drop removes a snapshot.
func (s *snapshotDir) drop(snap *snapshot) {
	if err := s.root.RemoveAll(s.dir(snap)); err != nil {
		s.log.Warn("cannot remove a snapshot, which takes space", "directory", s.dir(snap), "error", err)
	}
}

// left returns the complete snapshots of an earlier process and removes incomplete ones. A
// snapshot that cannot be read now is an error and is not removed: it may be the only copy of a
// checkpoint that the trainer has removed. unusable receives each snapshot that is removed, as far
// as it is known.
func (s *snapshotDir) left(unusable func(*snapshot, error)) ([]*snapshot, error) {
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
			s.log.Warn("another program created a file among the snapshots, leaving it", "file", path.Join(snapshotsName, e.Name()))
			continue
		}
		snap, err := s.read(e.Name())
		if err != nil && isLocal(err) && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot read a checkpoint that waits to be saved; nothing was changed: %w", err)
		}
		if err != nil {
			s.log.Warn("cannot use a snapshot of an earlier process", "directory", e.Name(), "error", err)
			if snap != nil {
				unusable(snap, err)
			}
			if err := s.root.RemoveAll(path.Join(snapshotsName, e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		snaps = append(snaps, snap)
	}
	return snaps, nil
}

// mostSnapshot is the maximum size of a snapshot's description.
const mostSnapshot = 256 << 20

func (s *snapshotDir) read(name string) (*snapshot, error) {
	if strings.HasPrefix(name, "new-") {
		return nil, errors.New("it is unfinished")
	}
	description := path.Join(snapshotsName, name, "snapshot.json")
	text, err := disk.ReadSmall(s.root, description, mostSnapshot)
	if odd := new(disk.NotRegularError); errors.As(err, &odd) {
		err = &fs.PathError{Op: "read", Path: description, Err: err} // counts as a disk error, so nothing is removed
	}
	if err != nil {
		return nil, err
	}
	snap := new(snapshot)
	if err := json.Unmarshal(text, snap); err != nil {
		return nil, err
	}
	if snap.ID != name || !uploadID.MatchString(name) {
		return nil, errors.New("its name is not its id")
	}
	snap.print = fingerprint(snap.Files)
	t, err := s.open(snap)
	if err != nil {
		return snap, err
	}
	defer t.close()
	return snap, same(t.root, snap.held())
}
