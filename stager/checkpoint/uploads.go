package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// Multipart uploads of mirrored files are recorded, because neither their keys nor the store
// identify their owner. A record in the output's directory lets the next process there resume
// them. A record at the destination lets a sweep find them after the pod is gone.
const (
	resumesName    = private + "/resumes"
	uploadsPrefix  = ".stager-uploads/" // at the destination, one object per process
	uploadsKind    = "IncompleteUploads"
	mostUploadsDoc = 1 << 20 // bytes
)

// uploadsDoc is the content of an object below uploadsPrefix.
type uploadsDoc struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Uploads    map[string]string `json:"uploads"` // key in the destination, by the store's ID of the upload
}

// uploadLog records the incomplete multipart uploads of one process.
type uploadLog struct {
	store *backends.Store // the destination
	local *journal
	key   string // of the record at the destination
	log   *slog.Logger

	mu      sync.Mutex        // guards the fields below
	begun   map[string]string // IDs, by key
	written bool              // the record may exist
}

func newUploadLog(store *backends.Store, local *journal, log *slog.Logger) *uploadLog {
	return &uploadLog{
		store: store, local: local, key: uploadsPrefix + disk.Unique() + ".json", log: log,
		begun: make(map[string]string),
	}
}

// options returns the options for an upload of key. They resume an earlier attempt.
func (l *uploadLog) options(ctx context.Context, key string) backends.CreateOptions {
	opts := l.local.resuming(key)
	note := opts.Begun
	opts.Begun = func(id, token string) {
		note(id, token)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.begun[key] = id
		l.writeLocked(ctx)
	}
	return opts
}

// writeLocked writes the record. Without it, the upload of a killed process counts as another
// program's and is kept.
func (l *uploadLog) writeLocked(ctx context.Context) {
	doc := uploadsDoc{apiVersion, uploadsKind, make(map[string]string, len(l.begun))}
	for key, id := range l.begun {
		doc.Uploads[id] = key
	}
	text, err := json.Marshal(doc)
	if err == nil {
		l.written = true
		_, err = l.store.PutBytes(ctx, l.key, text, backends.CreateOptions{})
	}
	if err != nil {
		l.log.Info("cannot record an incomplete upload", "key", l.key, "error", err)
	}
}

// done removes the completed upload of key from the records.
func (l *uploadLog) done(key string) {
	l.mu.Lock()
	_, began := l.begun[key]
	delete(l.begun, key)
	l.mu.Unlock()
	if began {
		l.local.note(key, "", "")
	}
}

// close closes the local record. l may be nil.
func (l *uploadLog) close() {
	if l != nil {
		l.local.close()
	}
}

// openUploads opens the record of uploads of mirrored files. The caller must hold the shipping
// token.
func (m *plainFiles) openUploads() {
	if m.uploads == nil {
		m.uploads = newUploadLog(m.cfg.Store, openJournal(m.root, resumesName), m.log)
	}
}

// abandonUploads returns the IDs of incomplete uploads that this process does not resume. The
// caller must hold the shipping token.
func (m *plainFiles) abandonUploads() []string {
	m.openUploads()
	return m.uploads.abandon(m.later)
}

// key returns the key of a mirrored file at the destination.
func (m *plainFiles) key(path string) string {
	if m.cfg.Mode == ModeCheckpoint {
		return filesDir + "/" + path
	}
	return path
}

// later reports whether key belongs to a file that is still to be mirrored, so that its upload may
// be resumed.
func (m *plainFiles) later(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path, p := range m.files {
		if m.key(path) == key {
			return p.sent != p.now
		}
	}
	return false
}

// close closes the local records.
func (m *plainFiles) close() {
	m.ledger.close()
	m.uploads.close()
}

// tidy removes the record when no upload is incomplete.
func (l *uploadLog) tidy(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.written || len(l.begun) > 0 {
		return
	}
	if err := l.store.Delete(ctx, l.key); err != nil {
		l.log.Info("cannot remove the records of complete uploads", "key", l.key, "error", err)
		return
	}
	l.written = false
}

// abandon returns the IDs of local uploads for whose keys pending returns false. This process does
// not resume them any more.
func (l *uploadLog) abandon(pending func(key string) bool) (ids []string) {
	for key, id := range l.local.incomplete() {
		if !pending(key) {
			l.local.abandon(key)
			ids = append(ids, id)
		}
	}
	return ids
}

// recordedUploads holds the uploads that the records at a destination name.
type recordedUploads struct {
	objects map[string]backends.Object // records, by key
	of      map[string][]string        // keys of the records that name an upload, by its ID
}

// readUploads reads the records of incomplete uploads. It ignores a record that it cannot parse
// or that has another version, so nobody removes that record.
func readUploads(ctx context.Context, store *backends.Store) (recordedUploads, error) {
	r := recordedUploads{make(map[string]backends.Object), make(map[string][]string)}
	for obj, err := range store.List(ctx, uploadsPrefix) {
		if backends.Empty(err) {
			break
		}
		if err != nil {
			return r, err
		}
		if !strings.HasSuffix(obj.Key, ".json") || obj.Size > mostUploadsDoc {
			continue
		}
		text, _, err := store.ReadAll(ctx, obj.Key, mostUploadsDoc)
		switch kind := backends.KindOf(err); {
		case err != nil && (kind == backends.NotExist || kind == backends.Changed):
			continue // its process is alive
		case err != nil:
			return r, fmt.Errorf("reading %s: %w", obj.Key, err)
		}
		var doc uploadsDoc
		if json.Unmarshal(text, &doc) != nil || doc.APIVersion != apiVersion || doc.Kind != uploadsKind {
			continue
		}
		r.objects[obj.Key] = obj
		for id := range maps.Keys(doc.Uploads) {
			r.of[id] = append(r.of[id], obj.Key)
		}
	}
	return r, nil
}

// recordedUpload reports whether a record at the destination names an upload, which proves that
// stager started it.
func (r *retention) recordedUpload(ctx context.Context, left backends.Orphan) bool {
	if left.ID == "" || r.ids[left.ID] {
		return left.ID != ""
	}
	r.readUploads(ctx)
	return len(r.uploads.of[left.ID]) > 0
}

// readUploads reads the records of incomplete uploads once.
func (r *retention) readUploads(ctx context.Context) {
	if r.uploads != nil {
		return
	}
	uploads, err := readUploads(ctx, r.store)
	if err != nil {
		r.log.Info("cannot read the records of incomplete uploads, so they are kept", "error", err)
	}
	r.uploads = &uploads
}

// keepRecords keeps the records of an upload that is not removed.
func (r *retention) keepRecords(left backends.Orphan) {
	if r.uploads == nil || left.ID == "" {
		return
	}
	for _, key := range r.uploads.of[left.ID] {
		r.alive[key] = true
	}
}

// sweepUploadRecords removes old records that name no upload found by the last sweep.
func (r *retention) sweepUploadRecords(ctx context.Context) error {
	if r.dry {
		return nil
	}
	r.readUploads(ctx)
	for key, obj := range r.uploads.objects {
		if r.alive[key] || !r.old(obj.ModTime) {
			continue
		}
		if err := r.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
