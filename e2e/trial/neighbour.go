package trial

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Neighbour is a process with access to the volumes that stager works in. It does all that
// its permissions allow: it renames, removes, truncates and replaces what it finds, by
// links to a secret among other things, and makes files of its own, which it remembers.
type Neighbour struct {
	Roots  []string      // directories of the volumes
	Secret string        // a file that links lead to; the neighbour itself never opens it
	Names  []string      // that stager may use next
	Spare  []string      // prefixes of names that are left alone
	Seed   uint64        // of its choices
	For    time.Duration // how long it works
	Fill   int64         // bytes that it fills a volume with, for a moment
}

// Ledger is what a Neighbour has done, and the files that are its own.
type Ledger struct {
	Did   map[string]int   // operations that succeeded, by name
	Files map[string]Owned // by path
}

// Owned is a file as its owner left it.
type Owned struct {
	Inode  uint64
	SHA256 string
}

// neighbour is one at work.
type neighbour struct {
	Neighbour
	Ledger
	rng   *rand.Rand
	count int // names that it made up
	bytes int // in its files
}

// foreign begins each of the neighbour's own files.
const foreign = "foreign "

// mostForeign bounds the bytes of the neighbour's own files.
const mostForeign = 8 << 20

// Run works until its time is over.
func (n Neighbour) Run() Ledger {
	syscall.Umask(0)
	w := &neighbour{
		Neighbour: n, Ledger: Ledger{Did: make(map[string]int), Files: make(map[string]Owned)},
		rng: rand.New(rand.NewPCG(n.Seed, 24)),
	}
	for until := time.Now().Add(n.For); time.Now().Before(until); time.Sleep(time.Duration(w.rng.IntN(2000)) * time.Microsecond) {
		name, op := w.operation()
		if op(w.pick()) == nil { // most fail for want of permission
			w.Did[name]++
		}
	}
	return w.Ledger
}

// operation chooses what is done next, to a path that may exist.
func (w *neighbour) operation() (string, func(string) error) {
	ops := []struct {
		name string
		do   func(string) error
	}{
		{"make a file", w.file},
		{"make a file of a name that stager uses", func(p string) error { return w.file(w.beside(p)) }},
		{"make a link to the secret", func(p string) error { return os.Symlink(w.Secret, w.beside(p)) }},
		{"make a link to its directory", func(p string) error { return os.Symlink(filepath.Dir(w.Secret), w.beside(p)) }},
		{"make a FIFO", func(p string) error { return syscall.Mkfifo(w.beside(p), 0o666) }},
		{"replace by a file", w.instead(w.file)},
		{"replace by a link to the secret", w.instead(func(p string) error { return os.Symlink(w.Secret, p) })},
		{"replace by a FIFO", w.instead(func(p string) error { return syscall.Mkfifo(p, 0o666) })},
		{"rename", w.rename},
		{"exchange", w.exchange},
		{"remove", os.Remove},
		{"truncate", w.truncate},
		{"chmod", func(p string) error { return unix.Fchmodat(unix.AT_FDCWD, p, uint32(w.rng.IntN(0o1000)), 0) }},
		{"link", func(p string) error { return os.Link(p, w.beside(p)) }},
		{"a link in a directory's place", w.detour},
		{"fill", w.fill},
	}
	op := ops[w.rng.IntN(len(ops))]
	if op.name == "fill" && w.rng.IntN(50) > 0 { // a full disk for most of the time would prove little
		op = ops[0]
	}
	return op.name, op.do
}

// pick returns a path: of something below the roots that is not a file of its own.
func (w *neighbour) pick() string {
	for dir := w.Roots[w.rng.IntN(len(w.Roots))]; ; {
		entries, err := os.ReadDir(dir)
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !w.open(filepath.Join(dir, e.Name())) })
		if err != nil || len(entries) == 0 {
			return filepath.Join(dir, w.made())
		}
		e := entries[w.rng.IntN(len(entries))]
		if p := filepath.Join(dir, e.Name()); !e.IsDir() || w.rng.IntN(6) == 0 {
			return p
		}
		dir = filepath.Join(dir, e.Name())
	}
}

// open reports whether the neighbour may do its worst to a path.
func (w *neighbour) open(p string) bool {
	_, own := w.Files[p]
	return !own && !slices.ContainsFunc(w.Spare, func(prefix string) bool { return strings.HasPrefix(path.Base(p), prefix) })
}

// beside is a name in the same directory as p or in that of another root, which stager
// may use next or which only the neighbour knows.
func (w *neighbour) beside(p string) string {
	dir := filepath.Dir(p)
	if w.rng.IntN(4) == 0 {
		dir = filepath.Dir(w.pick())
	}
	if w.rng.IntN(2) == 0 {
		return filepath.Join(dir, w.Names[w.rng.IntN(len(w.Names))])
	}
	return filepath.Join(dir, w.made())
}

// made makes up a name that nobody else has.
func (w *neighbour) made() string {
	w.count++
	return fmt.Sprintf("n-%d-%d", w.Seed, w.count)
}

// file makes a file of the neighbour's own, with a content that nothing else has.
func (w *neighbour) file(p string) error {
	if w.bytes > mostForeign {
		return errors.New("it has enough files")
	}
	if _, err := os.Lstat(p); err == nil {
		p = w.beside(p)
	}
	w.count++
	body := fmt.Appendf(nil, foreign+"%d %d ", w.count, w.rng.Uint64())
	body = append(body, make([]byte, w.rng.IntN(16<<10))...)
	file, err := os.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return err
	}
	_, err = file.Write(body)
	var st unix.Stat_t
	err = errors.Join(err, unix.Fstat(int(file.Fd()), &st), file.Close())
	if err != nil || !Tracked(p) {
		return err
	}
	// Somebody may have moved it already, a directory above it among others.
	sum := sha256.Sum256(body)
	w.bytes += len(body)
	w.Files[p] = Owned{Inode: st.Ino, SHA256: hex.EncodeToString(sum[:])}
	return nil
}

// Tracked reports whether a file of somebody else's must outlive stager there: everywhere
// but under the names that stager keeps for itself.
func Tracked(p string) bool {
	for name := range strings.SplitSeq(p, "/") {
		if strings.HasPrefix(name, ".stager") {
			return false
		}
	}
	return path.Base(p) != "RESTORED.json"
}

func isDir(p string) bool {
	info, err := os.Lstat(p)
	return err == nil && info.IsDir()
}

// instead puts something in the place of a file.
func (w *neighbour) instead(put func(string) error) func(string) error {
	return func(p string) error {
		if isDir(p) {
			return fs.ErrInvalid
		}
		if w.rng.IntN(2) == 0 {
			if err := os.Rename(p, filepath.Join(filepath.Dir(p), w.made())); err != nil {
				return err
			}
		} else if err := os.Remove(p); err != nil {
			return err
		}
		return put(p)
	}
}

// rename gives a file another name. Directories come back, by detour, or there would soon
// be nothing left to disturb.
func (w *neighbour) rename(p string) error {
	if isDir(p) {
		return fs.ErrInvalid
	}
	return w.move(p, w.beside(p))
}

// exchange swaps two names.
func (w *neighbour) exchange(p string) error {
	other := w.pick()
	if isDir(p) || isDir(other) {
		return fs.ErrInvalid
	}
	return unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
}

func (w *neighbour) truncate(p string) error {
	file, err := os.OpenFile(p, os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close() // nothing was written
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return fs.ErrInvalid
	}
	return file.Truncate(w.rng.Int64N(info.Size()))
}

// detour puts a link to the secret's directory in the place of a directory, for a moment.
func (w *neighbour) detour(p string) error {
	dir := filepath.Dir(p)
	if slices.Contains(w.Roots, dir) {
		return fs.ErrInvalid // a volume's own directory cannot be moved
	}
	aside := w.aside(dir, filepath.Join(filepath.Dir(dir), w.made()))
	if err := w.move(dir, aside); err != nil {
		return err
	}
	err := os.Symlink(filepath.Dir(w.Secret), dir)
	time.Sleep(time.Duration(w.rng.IntN(20)) * time.Millisecond)
	if err == nil {
		err = os.Remove(dir)
	}
	return errors.Join(err, w.move(aside, dir)) // stager may have made another
}

// aside is another name for what is at p. What is stager's own keeps a name that says so,
// wherever it goes.
func (w *neighbour) aside(p, other string) string {
	if Tracked(p) {
		return other
	}
	return filepath.Join(filepath.Dir(other), ".stager-"+filepath.Base(other))
}

// move renames a file, or a directory with the files of its own below it.
func (w *neighbour) move(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	moved := make(map[string]Owned)
	for p, own := range w.Files {
		if below, ok := strings.CutPrefix(p, from+"/"); ok {
			delete(w.Files, p)
			moved[to+"/"+below] = own
		}
	}
	for p, own := range moved {
		w.Files[p] = own
	}
	return nil
}

// fill fills a volume, for a moment.
func (w *neighbour) fill(p string) error {
	if w.Fill == 0 {
		return fs.ErrInvalid
	}
	name := filepath.Join(filepath.Dir(p), w.made())
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for left := w.Fill; left > 0 && err == nil; left -= 1 << 20 {
		err = unix.Fallocate(int(file.Fd()), 0, w.Fill-left, 1<<20)
	}
	time.Sleep(time.Duration(w.rng.IntN(50)) * time.Millisecond)
	return errors.Join(file.Close(), os.Remove(name))
}
