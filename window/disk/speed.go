package disk

import (
	"context"
	"errors"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
)

// Speed writes this many files at once, in whole buffers.
const (
	speedFiles  = 4
	speedFile   = 64 << 20
	speedBuffer = 512 << 10
)

// Speed measures how fast the disk takes large files. It writes several at once below dir, with the
// code that writes fetched files, for about the time during but at least one buffer each. It returns
// the bytes per second, and whether the writes were direct. It works in a temporary directory, which
// it removes.
func Speed(ctx context.Context, dir string, how Write, during time.Duration) (perSecond float64, direct bool, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, false, err
	}
	scratch, err := os.MkdirTemp(dir, ".stager-bench-")
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	directory, err := Open(scratch, "stager bench")
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, directory.Close()) }()
	if err := directory.SetWrite(how, false, nil); err != nil {
		return 0, false, err
	}
	directory.writing.KeepBusy()
	raw := make([]byte, speedBuffer+directAlign)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(raw))) & uintptr(directAlign-1)
	buf := raw[skip : skip+speedBuffer]
	for i := range buf {
		buf[i] = byte(i * 167 >> 3)
	}
	began := time.Now()
	var written [speedFiles]int64
	g, ctx := errgroup.WithContext(ctx)
	for i := range speedFiles {
		g.Go(func() error {
			for {
				n, err := directory.writeOne(ctx, string(rune('a'+i)), buf, began.Add(during))
				written[i] += n
				if err != nil || time.Since(began) >= during {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return 0, false, err
	}
	direct = directory.writing.direct.Load()
	if c := directory.writing.chooser; c != nil && direct {
		direct = directory.writing.moved[past].Load() >= directory.writing.moved[through].Load()
	}
	if !direct || directory.writing.chooser != nil { // flush what is still in the cache
		if err := directory.Sync(); err != nil {
			return 0, direct, err
		}
	}
	var sum int64
	for _, n := range written {
		sum += n
	}
	return float64(sum) / time.Since(began).Seconds(), direct, nil
}

// writeOne writes one file until the given time, but at least one buffer, and removes it.
func (f *Dir) writeOne(ctx context.Context, name string, buf []byte, until time.Time) (n int64, err error) {
	in, err := f.Incoming(name, speedFile, "")
	if err != nil {
		return 0, err
	}
	for err == nil && n < speedFile && (n == 0 || time.Now().Before(until)) {
		var m int
		if m, err = in.WriteAt(buf, n); err == nil {
			err = ctx.Err()
		}
		n += int64(m)
	}
	return n, errors.Join(err, in.Discard())
}
