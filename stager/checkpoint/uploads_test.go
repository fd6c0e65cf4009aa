package checkpoint

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
)

// CreateParts starts a multipart upload, which is listed until it is committed. While the store
// is broken, no upload is committed.
func (p *partsStore) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	w, err := p.Backend.CreateParts(ctx, key, opts)
	if err != nil || opts.Begun == nil || opts.Size < largeFile {
		return w, err
	}
	id := opts.Resume
	if i := slices.IndexFunc(p.left, func(l backends.Orphan) bool { return l.ID == id }); i < 0 || id == "" {
		p.begun++
		id = fmt.Sprintf("upload-%d", p.begun)
		p.left = append(p.left, backends.Orphan{Key: key, ID: id, Size: opts.Size, Touched: time.Now()})
	}
	opts.Begun(id, id)
	return partsWriter{w, p, id}, nil
}

const largeFile = 1 << 20

type partsWriter struct {
	backends.PartWriter
	store *partsStore
	id    string
}

func (w partsWriter) WritePart(ctx context.Context, off int64, src *backends.Part) error {
	if w.store.broken {
		return backends.Errorf(backends.Unavailable, "write", w.id, "the test's script")
	}
	return w.PartWriter.WritePart(ctx, off, src)
}

func (w partsWriter) Commit(ctx context.Context) (backends.Object, error) {
	obj, err := w.PartWriter.Commit(ctx)
	if err == nil {
		w.store.left = slices.DeleteFunc(w.store.left, func(l backends.Orphan) bool { return l.ID == w.id })
	}
	return obj, err
}

func uploadRecords(p *partsStore) (keys []string) {
	for _, key := range p.Keys() {
		if strings.HasPrefix(key, uploadsPrefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// killedMirror returns a store at which a process was killed while it mirrored a large file, and
// the directory of the output.
func killedMirror(t *testing.T, size int) (p *partsStore, dir string) {
	t.Helper()
	p, dir = newPartsStore(), t.TempDir()
	p.broken = true
	u := newUploader(t, dir, p, nil)
	write(t, filepath.Join(dir, "trace.log"), map[string]string{"": strings.Repeat("x", size)})
	pass(t, u)
	time.Sleep(u.cfg.QuietPeriod)
	if err := u.Sync(t.Context()); backends.KindOf(err) != backends.Unavailable {
		t.Fatalf("got %v, want an error of kind Unavailable", err)
	}
	if err := u.Close(); err != nil {
		t.Fatal(err)
	}
	p.broken = false
	if got := uploadRecords(p); !slices.Contains(p.keys(), "files/trace.log") || len(got) != 1 {
		t.Fatalf("after the kill there are the uploads %q with the records %q, want trace.log and 1", p.keys(), got)
	}
	return p, dir
}

// The incomplete uploads of a killed process for large mirrored files stayed forever, because
// nothing showed that stager owned them.
func TestSweepFindsUploadsOfMirroredFilesByTheirRecords(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after time.Duration
		gone  bool
	}{
		{"another pod, which may live", Abandoned - time.Hour, false},
		{"a pod that is gone", Abandoned + time.Hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p, _ := killedMirror(t, largeFile)
				time.Sleep(tt.after)
				dir := t.TempDir()
				u := newUploader(t, dir, p, func(c *Config) { c.Keep.Last = 1 })
				write(t, filepath.Join(dir, "step-8"), model("8"))
				settled(t, u)
				want := foreignUploads
				if !tt.gone {
					want = append(slices.Clone(foreignUploads), "files/trace.log")
				}
				if got := p.keys(); !slices.Equal(got, want) {
					t.Errorf("after the sweep there are %q, want %q", got, want)
				}
			})
		})
	}
}

func TestPruneRemovesRecordsOfUploadsThatEnded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, _ := killedMirror(t, largeFile)
		prune := func(abandoned time.Duration, dry bool) {
			t.Helper()
			cfg := PruneConfig{Store: newStore(p), Keep: Keep{Last: 1}, Abandoned: abandoned, DryRun: dry, Foreign: ForeignKeep}
			if _, err := Prune(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
		prune(Abandoned, false)
		prune(0, true)
		if got := uploadRecords(p); !slices.Contains(p.keys(), "files/trace.log") || len(got) != 1 {
			t.Errorf("while it may live there are %q and the records %q, want its upload and 1 record", p.keys(), got)
		}
		prune(0, false)
		if got, records := p.keys(), uploadRecords(p); !slices.Equal(got, foreignUploads) || len(records) > 0 {
			t.Errorf("after it there are %q and the records %q, want %q and none", got, records, foreignUploads)
		}
	})
}

// A record that names uploads of other programs must come from somebody who may write to the
// destination. A record that stager cannot read names nothing, and stays.
func TestPruneKeepsRecordsThatItCannotRead(t *testing.T) {
	p := newPartsStore()
	for i := range p.left {
		p.left[i].ID = fmt.Sprintf("id-%d", i)
	}
	for name, text := range map[string]string{
		"cut":    `{"apiVersion":"stager.dev/v1alpha1","kind":"IncompleteUploads","uploads":{"id-1":`,
		"later":  `{"apiVersion":"stager.dev/v9","kind":"IncompleteUploads","uploads":{"id-1":"files/video.mp4"}}`,
		"theirs": `{"uploads":{"id-1":"files/video.mp4"}}`,
	} {
		p.Put(uploadsPrefix+name+".json", []byte(text))
	}
	if _, err := Prune(t.Context(), PruneConfig{Store: newStore(p), Keep: Keep{Last: 1}}); err != nil {
		t.Fatal(err)
	}
	if got := p.keys(); !slices.Equal(got, foreignUploads) {
		t.Errorf("there are %q, want %q", got, foreignUploads)
	}
	if got := uploadRecords(p); len(got) != 3 {
		t.Errorf("there are the records %q, want 3", got)
	}
}

// The next process in the same directory resumes the upload, and leaves no record.
func TestMirrorResumesAnUpload(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, dir := killedMirror(t, largeFile)
		begun := p.begun
		u := newUploader(t, dir, p, nil)
		settled(t, u)
		if _, ok := p.Get("files/trace.log"); !ok || p.begun != begun {
			t.Errorf("the file is there: %t, and %d uploads began again, want true and 0", ok, p.begun-begun)
		}
		if got := p.keys(); !slices.Equal(got, foreignUploads) {
			t.Errorf("there are %q, want %q", got, foreignUploads)
		}
		// Without other large files, only the age of the killed process's record shows that it is
		// no longer needed.
		time.Sleep(Abandoned)
		if _, err := Prune(t.Context(), PruneConfig{Store: newStore(p), Keep: Keep{Last: 1}, Abandoned: Abandoned}); err != nil {
			t.Fatal(err)
		}
		if got := uploadRecords(p); len(got) > 0 {
			t.Errorf("there are the records %q, want none", got)
		}
	})
}

// The file of an upload that the killed process started is gone. The next process in the
// directory removes the upload at once.
func TestSweepRemovesOwnUploadsOfRemovedFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, dir := killedMirror(t, largeFile)
		remove(t, dir, "trace.log")
		settled(t, newUploader(t, dir, p, nil))
		if got := p.keys(); slices.Contains(got, "files/trace.log") {
			t.Errorf("there are %q, want %q without files/trace.log", got, foreignUploads)
		}
	})
}
