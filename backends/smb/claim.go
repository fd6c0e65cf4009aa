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
)

// claim gives the file its name unless that is taken. The library renames only over
// what is there, so writers agree beside the key, in a directory that is there while one
// of them is about it:
//
//  1. Each makes a file with a name of its own, a flag, and holds it open.
//  2. Then it looks who else has one, and removes what the server lets it remove:
//     servers remove no open file, so that was left by somebody who is gone.
//  3. If it finds its own flag and no other, it is alone: it looks whether the key is
//     taken, renames, and takes its flag away. If not, it takes its flag away and
//     comes again a little later.
//
// Of two flags the one that was made later finds the other, so two are never alone at
// once. No name is used twice because Samba, when it removes a file on closing it,
// removes what has the name then: a claim by one well-known name was removed by those
// who had meant the one before it, and two writers won.
//
// Samba also gives a file its name a moment before it notes that the file is open.
// Whose flag was removed in that moment does not find it, and comes again.
//
// All is one call in one session: who does not wait for its end leaves the flag up as
// long as the rename may still come, and if the session ends, so does the flag, and
// what comes after does not reach the server.
func (u *upload) claim(ctx context.Context, s *session) error {
	since := time.Now()
	worth := func(err error) bool { return errors.Is(err, errClaimed) || elsewhere(err) }
	err := patiently(ctx, worth, func() error {
		_, err := call(ctx, s, func(share *smb2.Share) (struct{}, error) {
			return struct{}{}, u.publishFirst(ctx, share, u.taken)
		}, nil)
		return err
	})
	return u.claimed(err, since)
}

// claimed says of a key that other writers claim for how long that was so.
func (u *upload) claimed(err error, since time.Time) error {
	if errors.Is(err, errClaimed) {
		return backends.Errorf(backends.Unavailable, "commit", u.key, "%w since %v", err, time.Since(since).Round(time.Second))
	}
	return err
}

// swap gives the file its name in place of the version that IfVersion says. Writers
// exclude each other as in claim.
func (u *upload) swap(ctx context.Context, s *session) error {
	since := time.Now()
	err := u.replace(ctx, s, func() error {
		_, err := call(ctx, s, func(share *smb2.Share) (struct{}, error) {
			return struct{}{}, u.publishFirst(ctx, share, u.compare)
		}, nil)
		if elsewhere(err) {
			err = errClaimed
		}
		return err
	})
	return u.claimed(err, since)
}

// compare is taken for who replaces: an error of kind Changed says that the key has
// another version than the expected one.
func (u *upload) compare(share *smb2.Share) (done bool, err error) {
	info, err := statShared(share, u.key)
	if backends.KindOf(missing("commit", u.key, err)) == backends.NotExist && err != nil || err == nil && info.IsDir() {
		return false, backends.CompareVersion(u.key, u.opts.IfVersion, "")
	}
	if err != nil {
		return false, err
	}
	if u.mine(info) {
		return true, nil
	}
	return false, backends.CompareVersion(u.key, u.opts.IfVersion, describe(u.key, info).Version)
}

var errClaimed = errors.New("the key is claimed by another writer")

// elsewhere tells whether an error comes of what another client does, or of too few
// credits (see statFile), and is gone a little later.
func elsewhere(err error) bool {
	return busy(err) || status(err) == statusDeletePending || status(err) == statusInvalidParameter
}

// publishFirst renames if may, which looks what has the key, does not say that this
// was done already, nor fails. It is asked again when nobody else can be about it.
func (u *upload) publishFirst(ctx context.Context, share *smb2.Share, may func(*smb2.Share) (done bool, err error)) error {
	if done, err := may(share); done || err != nil {
		return err // most who come too late are told so here
	}
	flag, err := raise(share, claims(u.key))
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
		return context.Cause(ctx) // nobody waits any more
	}
	return share.Rename(u.temp, u.key)
}

// taken tells whether the key has the file that was written here, since the answer to
// its rename was lost; an error of kind Exist says that it has another.
func (u *upload) taken(share *smb2.Share) (done bool, err error) {
	info, err := statShared(share, u.key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case u.mine(info):
		return true, nil
	}
	return false, backends.Errorf(backends.Exist, "commit", u.key, "the key is taken")
}

// claims is the directory for those who claim a key.
func claims(key string) string {
	sum := sha256.Sum256([]byte(path.Base(key)))
	return path.Join(path.Dir(key), Temporary+"claim-"+hex.EncodeToString(sum[:8]))
}

// flag is a file that says that its owner is about to publish. The library closes a
// file that nothing refers to any more, so the flag is up for as long as lower refers
// to it.
type flag struct {
	share           *smb2.Share
	directory, name string
	file            *smb2.File
}

// raise makes a flag, and the directory if it is not there. It fails with errClaimed when
// another writer was in the way.
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
			err = errClaimed // somebody removed the directory
		}
	}
	return nil, err
}

// alone is nil when the flag is up and there is no other.
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

// lower takes the flag away.
func (f *flag) lower() {
	_ = f.file.Close()
	_ = f.share.Remove(f.path(f.name)) // others remove what is left
	f.clear()
}

// clear removes the directory if the flag was the last.
func (f *flag) clear() { _ = f.share.Remove(f.directory) }

func (f *flag) path(name string) string { return path.Join(f.directory, name) }
