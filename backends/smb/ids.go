package smb

import (
	"context"
	"errors"
	"io"
	"math"
	"path"
	"sync/atomic"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// ids says whether versions contain file ids. They do not if the server reports different ids for a
// file in a listing and for the open file, as impacket does: a file would have two versions. The
// server is asked once, before the first version is made, so that versions do not depend on the order of
// calls.
type ids struct{ state atomic.Int32 }

const (
	idsUnknown int32 = iota
	idsAgree
	idsDiffer
)

// noUniqueID is the file id of a file for which the server has none (MS-FSCC).
const noUniqueID = math.MaxUint64

// settle compares the ids of the files in a directory unless this was done before.
func (p protocol) settle(ctx context.Context, s *session, dir string) {
	known := &p.b.pool.ids.state
	if known.Load() != idsUnknown {
		return
	}
	state, err := call(ctx, s, func(share *smb2.Share) (int32, error) {
		listed, err := firstEntries(share, dir)
		return compareIDs(listed, func(name string) (fileshare.Info, error) { return statShared(share, path.Join(dir, name)) }), err
	}, nil)
	if err == nil {
		known.CompareAndSwap(idsUnknown, state)
	}
}

// attempts limits the files that are compared, since some vanish or are open exclusively.
const attempts = 8

// compareIDs compares the ids of files in a listing with those of the open files.
func compareIDs(listed []fileshare.Entry, open func(name string) (fileshare.Info, error)) int32 {
	others := 0
	for _, e := range listed[:min(len(listed), attempts)] {
		if e.ID == 0 {
			return idsDiffer
		}
		is, err := open(e.Name)
		switch {
		case err != nil:
		case is.ID == e.ID:
			return idsAgree
		case is.ID == 0:
			return idsDiffer
		default:
			others++
		}
	}
	if others > 1 { // one file alone may have been replaced
		return idsDiffer
	}
	return idsUnknown
}

// firstEntries returns the entries in the first response to a listing of a directory.
func firstEntries(share *smb2.Share, dir string) (entries []fileshare.Entry, err error) {
	if dir == "" {
		dir = "."
	}
	f, err := share.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read-only
	infos, err := f.Readdir(attempts)
	for _, info := range infos {
		if e := entry(dir, info); e.Type.IsRegular() || e.Type.IsDir() {
			entries = append(entries, e)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}
