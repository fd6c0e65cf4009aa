package backends

import (
	"context"
	"io"
	"iter"
	"time"
)

// Source is the reading half of a protocol. Its methods may be called from many
// goroutines at once.
type Source interface {
	// List yields the objects whose key begins with prefix, in ascending byte order
	// of the keys, each once. A prefix that matches nothing yields nothing. After
	// an error nothing follows. Directories are not objects and are not yielded.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]

	// Stat describes one object; kind NotExist when there is none.
	Stat(ctx context.Context, key string) (Object, error)

	// OpenRange reads n bytes of obj from off on, or to its end if n < 0. A stream
	// that ends early ends with io.ErrUnexpectedEOF. If the store holds another
	// version than obj.Version, OpenRange or a Read fails with kind Changed; an
	// empty obj.Version asks for whatever is there.
	//
	// The reader obeys ctx and may be a [ChecksumReader] and a [BufferedReader].
	OpenRange(ctx context.Context, obj Object, off, n int64) (io.ReadCloser, error)
}

// Sink is the writing half of a protocol. Its methods may be called from many
// goroutines at once.
type Sink interface {
	// Create begins to write key. Until Commit returns nil, readers see what was
	// there before.
	Create(ctx context.Context, key string, opts CreateOptions) (Writer, error)

	// Delete removes key; a key that is not there is no error.
	Delete(ctx context.Context, key string) error
}

// Backend is what a protocol implements. Users of a store hold a [Store].
type Backend interface {
	Source
	Sink
	Capabilities() Capabilities
	Close() error
}

// CreateOptions say what is known of an object before it is written.
type CreateOptions struct {
	// Size in bytes; -1 when it is not known.
	Size int64
	// IfAbsent makes Commit fail with kind Exist when the key is there already.
	// Capabilities.ConditionalCreate says whether the store decides this in one step.
	IfAbsent bool
	// IfVersion, when not empty, makes Commit fail with kind Changed unless the key is
	// there in this version, as Stat or an earlier Commit returned it. It excludes
	// IfAbsent. Capabilities.Guard says how the store keeps it. When the answer to a Commit
	// is lost, a second try fails with Changed although the first one succeeded: read
	// the object to find out.
	IfVersion Version
	// Begun and Resume carry a large object over the end of its writer, where the store
	// can. Begun, when not nil, is called with the ID of the upload, which Sweep reports,
	// and with a token, and Abort leaves what the store has to
	// whoever gives the token as Resume for the same key and size; Sweep finds it if nobody
	// comes. Of what is there already, bytes that are still those of the source are not
	// sent again; all others are, so an old token or a wrong one costs only time.
	Begun  func(id, token string)
	Resume string
}

// A Writer takes the bytes of one object in order. It is used by one goroutine.
type Writer interface {
	io.Writer
	// Commit publishes the object. After an error of kind Throttled or Unavailable
	// it may be called again. The outcome of a failed Commit may be unknown: Stat
	// tells.
	Commit(ctx context.Context) (Object, error)
	// Abort drops what was written. It may be called at any time, any number of
	// times, also after Commit (then it does nothing) and after the context of
	// Create ended.
	Abort() error
}

// PartCreator is the ability to take the parts of an object in any order and at
// once.
type PartCreator interface {
	// CreateParts begins to write key, whose opts.Size is known.
	CreateParts(ctx context.Context, key string, opts CreateOptions) (PartWriter, error)
}

// KeyChecker is the ability to tell, without asking the server, that a key can be no
// object's.
type KeyChecker interface {
	// CheckKey returns an error of kind Invalid for keys that Create always refuses.
	CheckKey(key string) error
}

// A PartWriter takes the parts of one object. WritePart may be called from many
// goroutines at once; Commit comes after all of them returned.
type PartWriter interface {
	// WritePart writes src at off. Parts begin at multiples of Capabilities.PartLength of
	// the object's size and are that long, but for the last. The writer may keep src until Commit or
	// Abort returns; it may read it more than once. A part that failed may be
	// written again.
	WritePart(ctx context.Context, off int64, src *io.SectionReader) error
	// Commit and Abort are those of Writer.
	Commit(ctx context.Context) (Object, error)
	Abort() error
}

// A ChecksumReader is a reader from OpenRange that learned the checksum of the whole
// object (not of the range) with the answer. A zero Checksum means it did not.
type ChecksumReader interface {
	ObjectChecksum() Checksum
}

// A BufferedReader is a reader from OpenRange that lends the memory into which it received, which
// saves its user a buffer and a copy.
type BufferedReader interface {
	// NextBuffer returns the next bytes, at least one, in place of Read. They are the caller's,
	// to read, until he calls the reader again. Errors are those of Read, and come
	// without bytes.
	NextBuffer() ([]byte, error)
}

// Capabilities are what a store promises, and how it likes to be used.
type Capabilities struct {
	// AtomicReplace: Commit replaces an existing key in one step; readers see the
	// old object or the new one.
	AtomicReplace bool
	// ConditionalCreate: of several Commits with IfAbsent one wins, decided by the
	// store in one step. Of objects in parts that may hold for one after the other only.
	ConditionalCreate bool
	// Guard is how the store keeps CreateOptions.IfVersion.
	Guard Guard
	// PinnedReads: the store itself refuses to read another version. Otherwise the
	// backend compares before and after, and a change under way may be missed.
	PinnedReads bool
	// Parallelism is how many requests at once serve this store well.
	Parallelism int
	// MaxParallelism is up to how many it takes where each has a long way; a Store that
	// is not told how many finds out. 0: no more than Parallelism.
	MaxParallelism int
	// Hedged: OpenRange returns when the store has answered, and asking twice at once, and
	// ending one of both, does no harm. So a Store does where an answer is late.
	Hedged bool
	// PartSize, in bytes, is how large objects are best cut, for reading and for
	// PartCreator.
	PartSize int64
	// MaxParts is into how many parts one object may be cut; 0 means any number.
	MaxParts int64
	// Checksum is the algorithm the store most likely tells; computing it while
	// bytes arrive saves reading them again. Empty when it tells none.
	Checksum Algorithm
}

// A Guard is how a store decides a Commit with IfVersion when several writers race.
type Guard string

// The guards, strongest first.
const (
	// GuardServer: the server compares and replaces in one step.
	GuardServer Guard = "server"
	// GuardLock: writers on one machine exclude each other by a lock of the kernel,
	// which ends with its process.
	GuardLock Guard = "file-lock"
	// GuardClaim: a writer first creates a claim file beside the key, which succeeds
	// for one of them only, then compares and replaces. A claim whose writer died holds
	// up others for ClaimTimeout at most.
	GuardClaim Guard = "claim-file"
	// GuardNone: compared just before the replacement. Of two writers at the same
	// instant both may succeed.
	GuardNone Guard = ""
)

// PartLength is how long the parts of an object of so many bytes are: PartSize, or
// the multiple of it that keeps to MaxParts.
func (f Capabilities) PartLength(size int64) int64 {
	if f.PartSize <= 0 {
		return max(size, 1)
	}
	if f.MaxParts <= 0 {
		return f.PartSize
	}
	most := f.PartSize * f.MaxParts // in parts of PartSize
	return f.PartSize * max((size+most-1)/most, 1)
}

// Sweeper is the ability to find what killed writers left, which no List shows.
type Sweeper interface {
	// Sweep asks over about all that was written to keys that begin with prefix and is
	// neither an object nor dropped, and removes what it says nobody writes any more. A
	// store that knows better keeps that.
	Sweep(ctx context.Context, prefix string, over func(Orphan) bool) error
}

// Orphan are what is there of a write that has not ended.
type Orphan struct {
	Key       string    // that of the write, or a name in the same directory that no object has
	ID        string    // of an upload in parts, as Begun reported it; else empty
	Size      int64     // in bytes, as far as the store tells
	Touched   time.Time // when something last came, by the store's clock
	Directory bool      // it is a directory with nothing in it
	Marked    bool      // its name shows that stager wrote it; else it may be another program's
}
