package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// temp is a directory for as long as a server runs. Who is killed leaves his; the next
// that makes one removes it. A lock tells which are in use, for the system gives it
// up when its holder ends, however that happens.
type temp struct {
	path string
	lock *os.File
}

// makeTemp makes a directory that others may look into, since servers have users of
// their own. It ends with remove.
func makeTemp(name string) (_ *temp, err error) {
	all := filepath.Join(os.TempDir(), fmt.Sprintf("stager-servers-%d", os.Getuid()))
	if err := os.MkdirAll(all, 0o755); err != nil {
		return nil, err
	}
	making, err := os.Open(all)
	if err != nil {
		return nil, err
	}
	defer making.Close() // which unlocks it
	if err := syscall.Flock(int(making.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	left, err := os.ReadDir(all)
	if err != nil {
		return nil, err
	}
	for _, entry := range left {
		if lock, err := lockDir(filepath.Join(all, entry.Name())); err == nil {
			_ = os.RemoveAll(lock.Name()) // the next one tries again
			_ = lock.Close()
		}
	}
	path, err := os.MkdirTemp(all, name+"-")
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(path)
	if err == nil {
		err = os.Chmod(path, 0o755)
	}
	return &temp{path, lock}, err
}

// lockDir fails when somebody has the lock.
func lockDir(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// remove removes the directory; of none there is nothing to remove.
func (t *temp) remove() error {
	if t == nil {
		return nil
	}
	return errors.Join(os.RemoveAll(t.path), t.lock.Close())
}
