package nfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/nfs/internal/nfstest"
	"github.com/stager-dev/stager/backends/nfs/internal/remote"
)

// poisonedTree is the tree of a single file. It overwrites blocks that are released, and counts them.
type poisonedTree struct {
	remote.Tree
	content []byte
	block   int
	most    int // bytes that it returns per block; 0: as requested
	fail    int // the number of the read that fails, from 1 on
	change  int // the number of the read from which on the file is in another version

	mu          sync.Mutex
	reads       int
	outstanding int
	twice       bool // a block was released twice
	opens       int  // files that are open
}

func (p *poisonedTree) Sizes() (read, write int) { return p.block, p.block }

func (p *poisonedTree) Open(ctx context.Context, _ string, off int64, n int, once bool) (remote.File, remote.Block, error) {
	b, err := p.ReadAt(ctx, off, n)
	if err != nil || once {
		return nil, b, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opens++
	return &poisonedFile{poisonedTree: p}, b, nil
}

func (p *poisonedTree) ReadAt(ctx context.Context, off int64, n int) (remote.Block, error) {
	if err := ctx.Err(); err != nil {
		return remote.Block{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	if p.reads == p.fail {
		return remote.Block{}, &remote.Error{Status: remote.IO, Op: "READ"}
	}
	if p.most > 0 {
		n = min(n, p.most)
	}
	size := int64(len(p.content))
	data := bytes.Clone(p.content[min(off, size):min(off+int64(n), size)])
	p.outstanding++
	released := false
	free := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.twice = p.twice || released
		released = true
		p.outstanding--
		clear(data)
	}
	a := remote.Attr{Type: remote.Regular, Size: size, FileID: 1, Change: 1}
	if p.change > 0 && p.reads >= p.change {
		a.Change++
	}
	return remote.Block{Data: data, Attr: a, EOF: off+int64(len(data)) >= size, Free: free}, nil
}

// check reports blocks and files that are not released exactly once.
func (p *poisonedTree) check(t *testing.T, what string) {
	t.Helper()
	synctest.Wait() // for what is released in the background
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.outstanding != 0 || p.twice || p.opens != 0 {
		t.Fatalf("%s: got %d blocks and %d files left, released twice %t, want 0, 0, false", what, p.outstanding, p.opens, p.twice)
	}
}

type poisonedFile struct {
	remote.File
	*poisonedTree
}

func (f *poisonedFile) ReadAt(ctx context.Context, off int64, n int) (remote.Block, error) {
	return f.poisonedTree.ReadAt(ctx, off, n)
}

func (f *poisonedFile) Close(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opens--
	return nil
}

// pieceOf returns the next bytes of a reader, by Read of up to n bytes, or by NextBuffer if n is 0.
func pieceOf(r io.Reader, n int) ([]byte, error) {
	if n == 0 {
		return r.(backends.BufferedReader).NextBuffer()
	}
	p := make([]byte, n)
	n, err := r.Read(p)
	return p[:n], err
}

// Each block size, offset, length and length of short replies, by Read and by NextBuffer. The bytes stay
// valid until the next call, and blocks end at multiples of the block size.
func TestReaderOfEachRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, block := range []int{4096, 8192, 10_000} {
			for _, size := range []int{0, 1, 4095, 4096, 5*8192 + 17} {
				for _, off := range []int{0, 1, 4095, 4096, 8192, 8193, max(size-1, 0), size} {
					for _, n := range []int{-1, 0, 1, 4095, 4096, 8193, size - off, size - off + 1} {
						for _, most := range []int{0, 1000, 4096, 5000} {
							if off > size || n < -1 {
								continue
							}
							for _, by := range []int{0, 700} {
								tree := &poisonedTree{content: conformance.ContentsOf("k", int64(size)).Bytes(), block: block, most: most}
								what := fmt.Sprintf("block %d, size %d, off %d, n %d, at most %d, by %d", block, size, off, n, most, by)
								readEach(t, what, tree, off, n, by)
							}
						}
					}
				}
			}
		}
	})
}

func readEach(t *testing.T, what string, tree *poisonedTree, off, n, by int) {
	t.Helper()
	s := bareShare(tree, "", 16)
	want, end := tree.content[off:], io.EOF
	if n >= 0 && n < len(want) {
		want = want[:n]
	} else if n > len(want) {
		end = io.ErrUnexpectedEOF
	}
	r, err := s.OpenRange(t.Context(), backends.Object{Key: "k"}, int64(off), int64(n))
	if err != nil {
		t.Fatalf("%s: OpenRange: %v", what, err)
	}
	whole := tree.block
	if whole > 4096 {
		whole -= whole % 4096
	}
	at := 0
	for pieces := 0; ; pieces++ {
		p, err := pieceOf(r, by)
		if err != nil {
			if !errors.Is(err, end) || at != len(want) {
				t.Fatalf("%s: got %v after %d bytes, want %v after %d", what, err, at, end, len(want))
			}
			break
		}
		synctest.Wait() // until read-ahead has arrived
		if len(p) == 0 || at+len(p) > len(want) || !bytes.Equal(p, want[at:at+len(p)]) {
			t.Fatalf("%s: got %d bytes at %d that are not those of the file", what, len(p), at)
		}
		at += len(p)
		if n := (off + at) % whole; by == 0 && (tree.most == 0 || pieces > 0) && n != 0 && at != len(want) {
			t.Fatalf("%s: got a piece that ends at %d, want a multiple of %d or the end", what, off+at, whole)
		}
	}
	if err := r.Close(); err != nil {
		t.Errorf("%s: Close: %v", what, err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("%s: the second Close: %v", what, err)
	}
	tree.check(t, what)
	if n := s.streams.Load(); n != 0 {
		t.Errorf("%s: got %d streams left, want 0", what, n)
	}
}

// A reader that fails, is cancelled or is closed at any point returns all blocks, and no bytes of
// another version.
func TestReaderReleasesBlocksOnEachFault(t *testing.T) {
	const size, block = 9*4096 + 5, 4096
	content := conformance.ContentsOf("k", size).Bytes()
	synctest.Test(t, func(t *testing.T) {
		for _, most := range []int{0, 3000} {
			for _, n := range []int64{-1, 3 * 4096, 4096, 100} {
				for at := 1; at <= 12; at++ {
					for _, fault := range []string{"fails", "changes", "closes", "is cancelled"} {
						tree := &poisonedTree{content: content, block: block, most: most}
						ctx, cancel := context.WithCancel(t.Context())
						steps := 1000 // calls before the end
						switch fault {
						case "fails":
							tree.fail = at
						case "changes":
							tree.change = at
						default:
							steps = at - 1
						}
						what := fmt.Sprintf("%s at %d, n %d, at most %d", fault, at, n, most)
						r, err := bareShare(tree, "", 16).OpenRange(ctx, backends.Object{Key: "k"}, 0, n)
						if err != nil {
							cancel()
							tree.check(t, what)
							continue
						}
						var got []byte
						for range steps {
							p, perr := pieceOf(r, 0)
							if err = perr; err != nil {
								break
							}
							got = append(got, p...)
						}
						if fault == "is cancelled" {
							cancel()
							if _, err := pieceOf(r, 0); err == nil {
								t.Errorf("%s: got no error after the end of the context", what)
							}
						}
						synctest.Wait() // until read-ahead has arrived
						if !bytes.HasPrefix(content, got) {
							t.Errorf("%s: got %d bytes that are not those of the file", what, len(got))
						}
						if fault == "changes" && tree.reads >= at && backends.KindOf(err) != backends.Changed && !errors.Is(err, io.EOF) {
							t.Errorf("%s: got %v, want kind changed, or all bytes", what, err)
						}
						if err := r.Close(); err != nil {
							t.Errorf("%s: Close: %v", what, err)
						}
						if _, err := pieceOf(r, 0); err == nil {
							t.Errorf("%s: got no error after Close", what)
						}
						tree.check(t, what)
						cancel()
					}
				}
			}
		}
	})
}

// Long blocks that begin at a page of the file begin at one in memory, whatever is before them: in the
// response to OPEN that depends on the path.
func TestReaderAlignsBlocks(t *testing.T) {
	const block = 64 << 10
	for _, short := range []int{0, 10_000} {
		eachFake(t, "&rsize=64KiB", func(t *testing.T, vers string, s *nfstest.Server, store *backends.Store) {
			s.MaxRead = short
			for _, key := range []string{"k", "a/k", "a/b/c/k"} {
				want := conformance.ContentsOf(key, 5*block+100).Bytes()
				s.WriteFile("data/"+key, want)
				b, prefix := store.Backend()
				for i, off := range []int64{0, 0, 2 * block, 2*block + 4096, 1, block} {
					r, err := b.OpenRange(t.Context(), backends.Object{Key: prefix + key}, off, -1)
					if err != nil {
						t.Fatal(err)
					}
					at := off
					for blocks := 0; ; blocks++ {
						p, err := pieceOf(r, 0)
						if errors.Is(err, io.EOF) {
							break
						}
						if err != nil || !bytes.HasPrefix(want[at:], p) {
							t.Fatalf("%s from %d: got other bytes at %d (%v)", key, off, at, err)
						}
						known := i > 0 || blocks > ahead // before that, it is not known where the bytes are
						if got := uintptr(unsafe.Pointer(unsafe.SliceData(p))) % 4096; known && len(p) >= block/2 && at%4096 == 0 && got != 0 {
							t.Errorf("%s from %d, reading %d: got the bytes of %d at %d of a page, want 0", key, off, i, at, got)
						}
						at += int64(len(p))
					}
					if at != int64(len(want)) {
						t.Errorf("%s from %d: got the end at %d, want %d", key, off, at, len(want))
					}
					if err := r.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// A single stream reads ahead, and many streams share the slots.
func TestReadAheadIsSharedByStreams(t *testing.T) {
	for _, tt := range []struct{ slots, streams, want int }{
		{16, 0, 3}, {16, 1, 3}, {16, 5, 3}, {16, 6, 2}, {16, 8, 2}, {16, 9, 1}, {16, 100, 1}, {1, 1, 1}, {2, 1, 2}, {1024, 64, 3},
	} {
		s := &share{slots: tt.slots}
		s.streams.Store(int32(tt.streams))
		if got := s.window(); got != tt.want {
			t.Errorf("%d slots, %d streams: got %d blocks, want %d", tt.slots, tt.streams, got, tt.want)
		}
	}
}
