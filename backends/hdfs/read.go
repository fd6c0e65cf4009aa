package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends"
)

// OpenRange reads a file by its id, so that it reads this file whatever has its name
// by then. Where that is not the way to it, as through a federation's router or in a
// snapshot, it reads by name and compares the version again at the end.
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

// reader is a range of a file. The library's own may be used by one goroutine only,
// and so may this.
type reader struct {
	ctx     context.Context // the reader obeys the context of OpenRange
	store   *store
	session *session // nil when it is closed
	stop    func() bool
	file    *hdfs.FileReader
	byName  bool
	key     string
	want    backends.Version
	left    int64
	more    bool // than the file has was asked for
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
		return backends.Errorf(backends.Invalid, "read", r.key, "byte %d of a file of %d was asked for", off, size)
	}
	if off == 0 { // one of the ranges of every file begins here
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

func (r *reader) open(st *hdfs.FileStatus) (err error) {
	r.file, err = r.session.client.Open(fmt.Sprintf("/.reserved/.inodes/%d", st.GetFileId()))
	if err == nil && r.same(r.file) {
		return nil
	}
	if r.session.broken.Load() {
		return err
	}
	r.byName = true
	if r.file, err = r.session.client.Open("/" + r.key); err == nil && !r.same(r.file) {
		return r.changed("another")
	}
	return err
}

// same tells whether the library opened the version that is wanted.
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
	return backends.Errorf(backends.Changed, "read", r.key, "the file changed since it was listed, from version %s to %s", r.want, is)
}

// Read hands out bytes whose checksums the library has compared with the DataNode's.
func (r *reader) Read(p []byte) (int, error) {
	if err := ended(r.ctx, "read", r.key); err != nil {
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

// sip is less than a chunk, which is what has a checksum: 512 bytes, unless
// dfs.bytes-per-checksum says otherwise.
const sip = 256

// fill reads in sips. Given room for a chunk or more, the library reads into it,
// compares checksums, and when they differ still hands the bytes out as good ones; the
// next read then goes on behind them, at another replica. The same happens to the
// bytes before a connection broke, which nobody compared. A read of less than a chunk
// goes through a buffer that is compared first.
func (r *reader) fill(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var took int
		took, err = r.file.Read(p[n:min(n+sip, len(p))])
		n += took
	}
	return n, err
}

// why asks whether the file changed before it believes that the store fails: the
// blocks of a file that was replaced go away bit by bit.
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

// Close ends the range; what the DataNode still sends is not wanted.
func (r *reader) Close() error {
	if r.session == nil {
		return nil
	}
	if !r.stop() {
		r.session.cut()
	}
	if r.file != nil {
		_ = r.file.Close() // bytes that came were checked
	}
	r.store.pool.put(r.session)
	r.session = nil
	return nil
}
