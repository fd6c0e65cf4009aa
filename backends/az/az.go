package az

import (
	"context"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

const (
	// partSize is large enough that the overhead of a request becomes negligible.
	partSize = 8 << 20
	// maxBlocks is Azure's limit for one blob.
	maxBlocks = 50_000
)

// store is one container.
type store struct {
	name    string // of the container
	account string
	access  *access
	log     *slog.Logger
	heard   atomic.Bool // the server has responded, so its name exists
}

var (
	_ backends.Backend     = (*store)(nil)
	_ backends.PartCreator = (*store)(nil)
	_ backends.KeyChecker  = (*store)(nil)
)

// Capabilities implements backends.Backend.
func (s *store) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: true, Guard: backends.GuardServer, PinnedReads: true,
		Parallelism: 32, Hedged: true, PartSize: partSize, MaxParts: maxBlocks, OneRequest: objectstore.SmallObject,
	}
}

// Close closes the idle connections.
func (s *store) Close() error {
	s.access.close()
	return nil
}

// blob returns a client for one blob.
func (s *store) blob(ctx context.Context, key string) (*blockblob.Client, error) {
	c, err := s.access.container(ctx)
	if err != nil {
		return nil, err
	}
	return c.NewBlockBlobClient(key), nil
}

// List requests page after page, each after the previous one was consumed.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		last := ""
		var markers objectstore.Markers
		for item, err := range s.items(ctx, prefix, false) {
			if err != nil {
				yield(backends.Object{}, s.explain("list", prefix, err))
				return
			}
			obj := listed(item)
			if obj.Key <= last {
				yield(backends.Object{}, objectstore.Unordered(prefix, obj.Key, last))
				return
			}
			last = obj.Key
			if obj.Size == 0 && (meta(item.Metadata, metaDirectory) == "true" || strings.HasSuffix(obj.Key, "/")) {
				markers.Add(strings.TrimSuffix(obj.Key, "/") + "/")
			}
			markers.Next(ctx, obj.Key)
			if !hidden(item.Metadata, obj.Size) && !yield(obj, nil) {
				return
			}
		}
		markers.End(ctx)
	}
}

// items yields the entries of a listing. uncommitted adds names that have only blocks.
func (s *store) items(ctx context.Context, prefix string, uncommitted bool) iter.Seq2[*container.BlobItem, error] {
	return func(yield func(*container.BlobItem, error) bool) {
		opts := container.ListBlobsFlatOptions{Prefix: &prefix, Include: container.ListBlobsInclude{Metadata: true, UncommittedBlobs: uncommitted}}
		for {
			c, err := s.access.container(ctx) // for each page, since credentials change
			if err != nil {
				yield(nil, err)
				return
			}
			page, err := c.NewListBlobsFlatPager(&opts).NextPage(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			s.heard.Store(true)
			for _, item := range page.Segment.BlobItems {
				if !yield(item, nil) {
					return
				}
			}
			if value(page.NextMarker) == "" {
				return
			}
			opts.Marker = page.NextMarker
		}
	}
}

// listed returns the object of an entry.
func listed(item *container.BlobItem) backends.Object {
	obj := backends.Object{Key: value(item.Name)}
	if p := item.Properties; p != nil {
		obj.Size, obj.ModTime, obj.Version = value(p.ContentLength), value(p.LastModified), version(p.ETag)
	}
	return obj
}

// The metadata that mark blobs. Names of metadata are identifiers, and servers change their case.
const (
	metaWrite     = "stagerwrite"   // identifies the upload that wrote the blob
	metaRemoved   = "stagerremoved" // the blob is empty and about to be removed
	metaDirectory = "hdi_isfolder"  // the blob stands for a directory
)

// meta returns one value of metadata.
func meta(all map[string]*string, name string) string {
	for k, v := range all {
		if strings.EqualFold(k, name) {
			return value(v)
		}
	}
	return ""
}

// hidden reports whether a blob is no object: a directory, or about to be removed.
func hidden(all map[string]*string, size int64) bool {
	return size == 0 && (meta(all, metaDirectory) == "true" || meta(all, metaRemoved) != "")
}

// Stat implements backends.Source.
func (s *store) Stat(ctx context.Context, key string) (backends.Object, error) {
	obj, all, err := s.head(ctx, key)
	if err == nil && hidden(all, obj.Size) {
		return backends.Object{}, backends.Errorf(backends.NotExist, "stat", key, "no such object")
	}
	if err != nil {
		return backends.Object{}, s.explain("stat", key, err)
	}
	return obj, nil
}

// head returns a blob and its metadata.
func (s *store) head(ctx context.Context, key string) (backends.Object, map[string]*string, error) {
	if key == "" {
		return backends.Object{}, nil, backends.Errorf(backends.NotExist, "stat", key, "no such object")
	}
	b, err := s.blob(ctx, key)
	if err != nil {
		return backends.Object{}, nil, err
	}
	res, err := b.GetProperties(ctx, nil)
	if err != nil {
		return backends.Object{}, nil, err
	}
	s.heard.Store(true)
	return backends.Object{Key: key, Size: value(res.ContentLength), ModTime: value(res.LastModified), Version: version(res.ETag)}, res.Metadata, nil
}

// Delete removes one blob, with its snapshots.
func (s *store) Delete(ctx context.Context, key string) error {
	if s.CheckKey(key) != nil {
		return nil // no blob has such a key
	}
	err := s.remove(ctx, key, "")
	if classify(err) == backends.NotExist && codeOf(err) != noContainer {
		return nil
	}
	return s.explain("delete", key, err)
}

// remove deletes a blob, only in the version of, if not empty.
func (s *store) remove(ctx context.Context, key string, of backends.Version) error {
	b, err := s.blob(ctx, key)
	if err != nil {
		return err
	}
	opts := blob.DeleteOptions{DeleteSnapshots: pointer(blob.DeleteSnapshotsOptionTypeInclude)}
	if of != "" {
		opts.AccessConditions = inVersion(of)
	}
	_, err = b.Delete(ctx, &opts)
	return err
}

// inVersion is the condition that a blob is in a version.
func inVersion(v backends.Version) *blob.AccessConditions {
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: pointer(azcore.ETag(`"` + string(v) + `"`))}}
}

// ifNothing is the condition that there is no blob.
func ifNothing() *blob.AccessConditions {
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: pointer(azcore.ETagAny)}}
}

// CheckKey implements backends.KeyChecker. Azure silently drops dots at the end of names, and takes
// a backslash for a slash.
func (s *store) CheckKey(key string) error {
	invalid := func(format string, args ...any) error {
		return backends.Errorf(backends.Invalid, "create", key, format, args...)
	}
	switch {
	case key == "", len([]rune(key)) > 1024:
		return invalid("Azure's keys have 1 to 1,024 characters")
	case strings.Contains(key, `\`):
		return invalid(`Azure takes a "\" in a key for a "/": rename the file`)
	}
	for dir := range strings.SplitSeq(key, "/") {
		if strings.HasSuffix(dir, ".") {
			return invalid(`Azure removes a "." at the end of a name: rename the file or directory`)
		}
	}
	return nil
}

// version returns an ETag without quotes.
func version(etag *azcore.ETag) backends.Version {
	return backends.Version(strings.Trim(string(value(etag)), `"`))
}

func pointer[T any](v T) *T { return &v }

// value returns what p points to, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// rereadAfter is how long credentials from files are used before the files are read again.
const rereadAfter = 5 * time.Minute
