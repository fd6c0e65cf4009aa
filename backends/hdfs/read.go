package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// OpenRange implements backends.Source. It reads by file id, so it reads this file whatever has its
// name by then. Reading by id is impossible through a federation router and in a snapshot. There it
// reads by name and compares the version again at the end.
func (b *store) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	if err := findable("read", obj.Key); err != nil {
		return nil, err
	}
	s, err := b.pool.get(ctx)
	if err != nil {
		return nil, explain(ctx, "read", obj.Key, err)
	}
	r := &reader{ctx: ctx, store: b, session: s, key: obj.Key, want: obj.Version, stop: context.AfterFunc(ctx, s.cut)}
	if err := r.begin(off, n); err != nil {
		err = explain(ctx, "read", obj.Key, s.judge(err))
		_ = r.Close() // nothing was read
		return nil, err
	}
	return r, nil
}

// reader reads a range of a file. Like the reader of the library, it is not safe for concurrent
// use.
type reader struct {
	ctx     context.Context // the context of OpenRange, which bounds all reads
	store   *store
	session *session // nil after Close
	stop    func() bool
	file    *hdfs.FileReader
	byName  bool
	key     string
	want    backends.Version
	left    int64
	more    bool // the range extends beyond the end of the file
}

func (r *reader) begin(off, n int64) error {
	st, err := fileStatus(r.session.namenode, "read", r.key)
	if err != nil {
		return err
	}
	if r.want == "" {
		r.want = describe(r.key, st).Version
	}
	if err := r.compare(st); err != nil {
		return err
	}
	if err := plain("read", r.key, st); err != nil {
		return err
	}
	size := int64(st.GetLength())
	if off < 0 || off > size {
		return backends.Errorf(backends.Invalid, "read", r.key, "byte %d is outside the file of %d bytes", off, size)
	}
	if off == 0 { // one range of every file starts here
		if open, err := r.session.beingWritten("/" + r.key); err != nil {
			return err
		} else if open {
			return beingWritten("read", r.key)
		}
	}
	r.left = size - off
	if n > r.left {
		r.more = true
	} else if n >= 0 {
		r.left = n
	}
	if err := r.open(st); err != nil {
		return err
	}
	_, err = r.file.Seek(off, io.SeekStart)
	return err
}

func (r *reader) open(st *hdfs.FileStatus) error {
	library, err := r.session.library()
	if err != nil {
		return err
	}
	r.file, err = library.Open(fmt.Sprintf("/.reserved/.inodes/%d", st.GetFileId()))
	if err == nil && r.same(r.file) {
		return nil
	}
	if r.session.broken.Load() {
		return err
	}
	r.byName = true
	if r.file, err = library.Open("/" + r.key); err == nil && !r.same(r.file) {
		return r.changed("another")
	}
	return err
}

// same reports whether the library opened the wanted version.
func (r *reader) same(f *hdfs.FileReader) bool {
	st, ok := f.Stat().Sys().(*hdfs.FileStatus)
	return ok && describe(r.key, st).Version == r.want
}

func (r *reader) compare(st *hdfs.FileStatus) error {
	if is := describe(r.key, st).Version; is != r.want {
		return r.changed(string(is))
	}
	return nil
}

func (r *reader) changed(is string) error {
	return backends.Errorf(backends.Changed, "read", r.key, "the file changed after it was listed, from version %s to %s", r.want, is)
}

// Read returns bytes that the library has verified against the checksums of the DataNode.
func (r *reader) Read(p []byte) (int, error) {
	if err := fileshare.Ended(r.ctx, "read", r.key); err != nil {
		return 0, err
	}
	if r.session == nil {
		return 0, backends.Errorf(backends.Invalid, "read", r.key, "the reader is closed")
	}
	if r.left == 0 {
		if r.more {
			return 0, io.ErrUnexpectedEOF
		}
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.fill(p[:min(int64(len(p)), r.left)])
	if err != nil && n == 0 {
		return 0, r.why(err)
	}
	if r.left -= int64(n); r.left == 0 && r.byName {
		st, err := fileStatus(r.session.namenode, "read", r.key)
		if err == nil {
			err = r.compare(st)
		}
		if err != nil {
			return 0, explain(r.ctx, "read", r.key, err)
		}
	}
	return n, nil
}

// sip is less than a checksum chunk, which has 512 bytes unless dfs.bytes-per-checksum says
// otherwise.
const sip = 256

// fill reads in pieces of sip bytes, because of a trap in the library. With room for a chunk or
// more, the library reads directly into p. If the checksums then differ, it still returns the bytes
// as good, and the next read continues behind them at another replica. The same happens to
// unverified bytes before a connection breaks. A read of less than a chunk goes through a buffer
// that is verified first.
func (r *reader) fill(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var took int
		took, err = r.file.Read(p[n:min(n+sip, len(p))])
		n += took
	}
	return n, err
}

// why checks whether the file has changed before it reports a failure of the store: the blocks of a
// replaced file disappear gradually.
func (r *reader) why(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	cause := explain(r.ctx, "read", r.key, err)
	if r.ctx.Err() != nil {
		return cause
	}
	now := r.store.with(r.ctx, "read", r.key, func(s *session) error {
		st, err := fileStatus(s.namenode, "read", r.key)
		if err != nil {
			return err
		}
		return r.compare(st)
	})
	if k := backends.KindOf(now); now != nil && (k == backends.Changed || k == backends.NotExist || errors.Is(now, fs.ErrNotExist)) {
		return now
	}
	return cause
}

// Close ends the read and discards what the DataNode still sends.
func (r *reader) Close() error {
	if r.session == nil {
		return nil
	}
	if !r.stop() {
		r.session.cut()
	}
	if r.file != nil {
		_ = r.file.Close() // received bytes are verified already
	}
	r.store.pool.put(r.session)
	r.session = nil
	return nil
}
