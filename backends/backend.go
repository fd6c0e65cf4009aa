package backends

import (
	"context"
	"io"
	"iter"
	"time"
)

// Source is the reading half of a protocol. Its methods are safe for concurrent use.
type Source interface {
	// List yields the objects whose key begins with prefix, each once, in ascending byte order of
	// the keys. A prefix that matches nothing yields nothing. An error ends the sequence.
	// Directories are not objects and are not yielded.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]

	// Stat describes one object. It fails with kind NotExist when there is none.
	Stat(ctx context.Context, key string) (Object, error)

	// OpenRange reads n bytes of obj starting at off, or to the end if n < 0. A stream that is too
	// short ends with io.ErrUnexpectedEOF. If the store holds a version other than obj.Version,
	// OpenRange or a Read fails with kind Changed. An empty obj.Version matches any version.
	//
	// The reader obeys ctx. It may implement [ChecksumReader] and [BufferedReader].
	OpenRange(ctx context.Context, obj Object, off, n int64) (io.ReadCloser, error)
}

// Sink is the writing half of a protocol. Its methods are safe for concurrent use.
type Sink interface {
	// Create starts writing key. Until Commit returns nil, readers see the previous object.
	Create(ctx context.Context, key string, opts CreateOptions) (Writer, error)

	// Delete removes key. Deleting a missing key is not an error.
	Delete(ctx context.Context, key string) error
}

// Backend is the interface that a protocol implements. Users of a store hold a [Store].
type Backend interface {
	Source
	Sink
	Capabilities() Capabilities
	Close() error
}

// CreateOptions describe an object before it is written.
type CreateOptions struct {
	// Size in bytes; -1 if unknown.
	Size int64
	// IfAbsent makes Commit fail with kind Exist if the key exists. Capabilities.ConditionalCreate
	// reports whether the store checks this atomically.
	IfAbsent bool
	// IfVersion, if not empty, makes Commit fail with kind Changed unless the key exists in this
	// version, as returned by Stat or an earlier Commit. It excludes IfAbsent. Capabilities.Guard
	// describes how the store enforces it. If the response to a Commit is lost, a retry may fail
	// with Changed although the first attempt succeeded. Read the object to find out.
	IfVersion Version
	// Begun and Resume continue the upload of a large object with a new writer, if the store
	// supports it. Begun, if not nil, receives the upload ID, which Sweep reports, and a resume
	// token. Abort then leaves the uploaded parts in place. Pass the token as Resume, with the same
	// key and size, to continue; otherwise Sweep finds the upload. Parts that still match the
	// source are not sent again; all others are. An old or wrong token only costs time.
	Begun  func(id, token string)
	Resume string
}

// A Writer receives the bytes of one object in order. It is not safe for concurrent use.
type Writer interface {
	io.Writer
	// Commit publishes the object. After an error of kind Throttled or Unavailable it may be called
	// again. The outcome of a failed Commit may be unknown; Stat resolves it.
	Commit(ctx context.Context) (Object, error)
	// Abort discards the write. It may be called at any time and any number of times, even after
	// the context of Create ended. After Commit it does nothing.
	Abort() error
}

// PartCreator is implemented by backends that accept the parts of an object in any order and
// concurrently.
type PartCreator interface {
	// CreateParts starts writing key. opts.Size must be known.
	CreateParts(ctx context.Context, key string, opts CreateOptions) (PartWriter, error)
}

// KeyChecker is implemented by backends that can reject an impossible key without a request.
type KeyChecker interface {
	// CheckKey returns an error of kind Invalid for keys that Create always rejects.
	CheckKey(key string) error
}

// LevelLister is implemented by backends that can list a directory without what is below its
// directories.
type LevelLister interface {
	// ListLevel yields what List yields, but for the objects whose keys have a "/" behind prefix one
	// directory: an object of no bytes whose key ends with that "/". A directory may have no objects.
	ListLevel(ctx context.Context, prefix string) iter.Seq2[Object, error]
}

// PageLister is implemented by backends whose listings request one page after the other, and can begin
// behind any key. List, too, calls [NextPage] before each request but the first.
type PageLister interface {
	// ListAfter yields what List yields, without the keys up to after. It fails with kind Unsupported
	// or Invalid if the server cannot do that.
	ListAfter(ctx context.Context, prefix, after string) iter.Seq2[Object, error]
	// Directories returns the directories of one page of ListLevel that come behind after. more is false
	// if that is the last page.
	Directories(ctx context.Context, prefix, after string) (dirs []string, more bool, err error)
}

// Local is implemented by backends whose objects are files of this machine.
type Local interface {
	// Dir returns the directory that contains the files, under the names of their keys.
	Dir() string
}

// Hub is implemented by backends that read one commit of a repository of the Hugging Face Hub.
type Hub interface {
	// Commit returns which one.
	Commit() HubCommit
}

// HubCommit is a commit of a repository of the Hugging Face Hub.
type HubCommit struct {
	Kind     string // models, datasets or spaces
	Repo     string // such as org/model
	Revision string // the branch, tag or commit of the URL
	SHA      string
}

// A PartWriter receives the parts of one object. WritePart is safe for concurrent use. Call Commit
// after all WritePart calls have returned.
type PartWriter interface {
	// WritePart writes src at off. Parts begin at multiples of Capabilities.PartLength of the
	// object's size and have that length, except the last. The writer may read src more than once,
	// and may retain src.Unpaced until Commit or Abort returns. A failed part may be written again.
	WritePart(ctx context.Context, off int64, src *Part) error
	// Commit and Abort work as in Writer.
	Commit(ctx context.Context) (Object, error)
	Abort() error
}

// A ChecksumReader is a reader from OpenRange that received the checksum of the whole object (not
// of the range) with the response. The checksum is zero if the response had none.
type ChecksumReader interface {
	ObjectChecksum() Checksum
}

// A BufferedReader is a reader from OpenRange that exposes its receive buffer, which saves the
// caller a buffer and a copy.
type BufferedReader interface {
	// NextBuffer returns the next bytes, at least one, and replaces Read. The slice is read-only
	// and valid until the next call of the reader. Errors are those of Read; they come without
	// bytes.
	NextBuffer() ([]byte, error)
}

// Capabilities describe the guarantees of a store and how to use it efficiently.
type Capabilities struct {
	// AtomicReplace: Commit replaces an existing key atomically. Readers see the old object or the
	// new one.
	AtomicReplace bool
	// ConditionalCreate: of several Commits with IfAbsent exactly one succeeds, decided atomically
	// by the store. For objects in parts this may hold for sequential Commits only.
	ConditionalCreate bool
	// Guard describes how the store enforces CreateOptions.IfVersion.
	Guard Guard
	// PinnedReads: the store itself refuses to read another version. Otherwise the backend compares
	// versions before and after the read and may miss a change in between.
	PinnedReads bool
	// Parallelism is the number of concurrent requests that serves this store well.
	Parallelism int
	// MaxParallelism is the upper limit of concurrent requests for high-latency connections. A
	// Store without a user-set limit adapts up to it. 0 means Parallelism.
	MaxParallelism int
	// Hedged: OpenRange returns once the store has responded, and sending the request twice and
	// cancelling one of them is harmless. The Store then hedges slow requests.
	Hedged bool
	// PartSize is the best size, in bytes, for splitting large objects, both for reads and for
	// PartCreator.
	PartSize int64
	// MaxParts is the maximum number of parts of one object; 0 means no limit.
	MaxParts int64
	// OneRequest is the maximum size, in bytes, of an object that a PartCreator sends in Commit, so
	// that CreateParts and WritePart send nothing. 0: there is none.
	OneRequest int64
	// Checksum is the algorithm that the store most likely reports; empty if none. Computing it
	// while bytes arrive avoids reading them again.
	Checksum Algorithm
}

// A Guard is how a store decides between racing Commits with IfVersion.
type Guard string

// The guards, from strongest to weakest.
const (
	// GuardServer: the server compares and replaces atomically.
	GuardServer Guard = "server"
	// GuardLock: writers on one machine exclude each other with a kernel lock, which is released
	// when its process ends.
	GuardLock Guard = "file-lock"
	// GuardClaim: a writer first creates a claim file beside the key, which succeeds for only one
	// of them, then compares and replaces. The claim of a dead writer blocks others for at most
	// ClaimTimeout.
	GuardClaim Guard = "claim-file"
	// GuardNone: the version is compared just before the replacement. Two simultaneous writers may
	// both succeed.
	GuardNone Guard = ""
)

// PartLength returns the part length for an object of size bytes: PartSize, or the smallest
// multiple of it that satisfies MaxParts.
func (f Capabilities) PartLength(size int64) int64 {
	if f.PartSize <= 0 {
		return max(size, 1)
	}
	if f.MaxParts <= 0 {
		return f.PartSize
	}
	most := f.PartSize * f.MaxParts // bytes in MaxParts parts of PartSize
	return f.PartSize * max((size+most-1)/most, 1)
}

// Sweeper is implemented by backends that can find what killed writers left behind, which List
// never shows.
type Sweeper interface {
	// Sweep calls over for each incomplete write to keys that begin with prefix: neither an object
	// nor aborted. It removes those for which over returns true, unless the store knows that a
	// writer is still active.
	Sweep(ctx context.Context, prefix string, over func(Orphan) bool) error
}

// Orphan describes what an unfinished write left in the store.
type Orphan struct {
	Key       string    // of the write, or an unused name in the same directory
	ID        string    // of a multipart upload, as Begun reported it; else empty
	Size      int64     // in bytes, as far as the store reports it
	Touched   time.Time // time of the last write, by the store's clock
	Directory bool      // it is an empty directory
	Marked    bool      // its name shows that stager wrote it; otherwise it may belong to another program
}
