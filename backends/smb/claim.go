package smb

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// claim renames the temporary file to the key unless the key exists. A rename of the library always
// replaces its target, so writers exclude each other with flag files. The flags are in a
// directory beside the key, which exists only while a writer needs it:
//
//  1. Each writer creates a file with a unique name, its flag, and keeps it open.
//  2. It lists the flags and tries to remove those of others. Servers do not remove an open
//     file, so a flag that can be removed is an orphan of a crashed writer.
//  3. If only its own flag is left, the writer is alone: it checks whether the key exists,
//     renames, and removes its flag. Otherwise it removes its flag and retries later.
//
// Of two flags the later one always sees the earlier one, so two writers are never alone at the
// same time. No name is used twice, because of a trap in Samba: when Samba removes a file on
// close, it removes whatever has that name by then. A claim file with a fixed name was removed by
// writers that meant its predecessor, and two writers won.
//
// Samba also creates the name of a file shortly before it records that the file is open. A writer
// whose flag is removed in between does not find it in the list, and retries.
//
// The whole procedure is one call in one session. If the caller stops waiting, the flag stays as
// long as the rename may still be sent. If the session ends, the flag ends with it and later
// requests do not reach the server.
func (u *publishing) claim(ctx context.Context) error {
	since := time.Now()
	worth := func(err error) bool { return errors.Is(err, errClaimed) || elsewhere(err) }
	err := patiently(ctx, worth, func() error {
		return u.run(ctx, func(share *smb2.Share) error { return u.publishFirst(ctx, share, u.taken) })
	})
	return u.claimed(err, since)
}

// claimed adds to errClaimed how long other writers have claimed the key.
func (u *publishing) claimed(err error, since time.Time) error {
	if errors.Is(err, errClaimed) {
		return backends.Errorf(backends.Unavailable, "commit", u.Key, "%w since %v", err, time.Since(since).Round(time.Second))
	}
	return err
}

// swap renames the temporary file over the version given by IfVersion. Writers exclude each other
// as in claim.
func (u *publishing) swap(ctx context.Context) error {
	since := time.Now()
	err := u.replace(ctx, func() error {
		err := u.run(ctx, func(share *smb2.Share) error { return u.publishFirst(ctx, share, u.compare) })
		if elsewhere(err) {
			err = errClaimed
		}
		return err
	})
	return u.claimed(err, since)
}

// compare is the check of swap. It returns an error of kind Changed if the key has another version
// than expected, and true if this writer has already published.
func (u *publishing) compare(share *smb2.Share) (done bool, err error) {
	info, err := statShared(share, u.Key)
	if backends.KindOf(missing("commit", u.Key, err)) == backends.NotExist && err != nil || err == nil && info.Type.IsDir() {
		return false, backends.CompareVersion(u.Key, u.Opts.IfVersion, "")
	}
	if err != nil {
		return false, err
	}
	if u.Wrote(info) {
		return true, nil
	}
	is := protocol{u.b}.Version(info)
	if sameVersion(is, u.Opts.IfVersion) {
		return false, nil
	}
	return false, backends.CompareVersion(u.Key, u.Opts.IfVersion, is)
}

var errClaimed = errors.New("another writer has claimed the key")

// elsewhere reports whether an error is temporary: caused by another client, or by too few credits
// (see statFile).
func elsewhere(err error) bool {
	return busy(err) || status(err) == statusDeletePending || status(err) == statusInvalidParameter
}

// publishFirst renames the temporary file if may allows it. It calls may before it raises the flag
// and again when no other writer is active. It does not rename if may returns true (already
// published) or an error.
func (u *publishing) publishFirst(ctx context.Context, share *smb2.Share, may func(*smb2.Share) (done bool, err error)) error {
	if done, err := may(share); done || err != nil {
		return err // most late writers return here
	}
	flag, err := raise(share, claims(u.Key))
	if err != nil {
		return err
	}
	defer flag.lower()
	if err := flag.alone(); err != nil {
		return err
	}
	if done, err := may(share); done || err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // the caller has left
	}
	return share.Rename(u.Temp, u.Key)
}

// taken returns true if the key already has the file of this writer, because the response to its
// rename was lost. If the key has another file, it returns an error of kind Exist.
func (u *publishing) taken(share *smb2.Share) (done bool, err error) {
	info, err := statShared(share, u.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case u.Wrote(info):
		return true, nil
	}
	return false, backends.Errorf(backends.Exist, "commit", u.Key, "the key already exists")
}

// claims returns the directory for the flags of a key.
func claims(key string) string {
	sum := sha256.Sum256([]byte(path.Base(key)))
	return path.Join(path.Dir(key), fileshare.Temporary+"claim-"+hex.EncodeToString(sum[:8]))
}

// flag is the file that marks a writer as about to publish. The library closes a file that is no
// longer referenced, so the deferred lower also keeps the flag open.
type flag struct {
	share           *smb2.Share
	directory, name string
	file            *smb2.File
}

// raise creates a flag, and its directory if necessary. It returns errClaimed if another writer
// interfered.
func raise(share *smb2.Share, directory string) (*flag, error) {
	f := &flag{share: share, directory: directory, name: rand.Text()[:16]}
	err := share.Mkdir(directory, 0o755)
	if err == nil || errors.Is(err, fs.ErrExist) {
		f.file, err = share.OpenFile(f.path(f.name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			return f, nil
		}
		f.clear()
		if errors.Is(err, fs.ErrNotExist) {
			err = errClaimed // another writer removed the directory
		}
	}
	return nil, err
}

// alone returns nil if the flag exists and is the only one, else errClaimed.
func (f *flag) alone() error {
	all, err := f.share.ReadDir(f.directory)
	if err != nil {
		return err
	}
	up := false
	for _, other := range all {
		if other.Name() == f.name {
			up = true
			continue
		}
		err := f.share.Remove(f.path(other.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errClaimed
		}
	}
	if !up {
		return errClaimed
	}
	return nil
}

// lower removes the flag.
func (f *flag) lower() {
	_ = f.file.Close()
	_ = f.share.Remove(f.path(f.name)) // other writers remove an orphaned flag
	f.clear()
}

// clear removes the directory if it is empty.
func (f *flag) clear() { _ = f.share.Remove(f.directory) }

func (f *flag) path(name string) string { return path.Join(f.directory, name) }
