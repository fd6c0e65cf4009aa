package fileshare

import (
	"context"
	"errors"
	"io"

	"github.com/stager-dev/stager/backends"
)

// A Protocol makes the calls of a file protocol for a [Share]. Names are paths below the root of the
// tree. Its methods are safe for concurrent use, return when ctx ends, and return errors as the
// library has them, where errors.Is recognises [io/fs.ErrNotExist] and [io/fs.ErrExist].
type Protocol interface {
	Tree
	// Classify converts an error of any call to a [backends.Error]. It returns nil,
	// [backends.Error] and [backends.LocalError] as they are.
	Classify(op, key string, err error) error
	// Same reports whether two versions may be of the same file with the same contents.
	Same(a, b backends.Version) bool

	// Stat returns the attributes of a file, and of its target if it is a link.
	Stat(ctx context.Context, name string) (Info, error)
	// Create creates a file that must not exist, and opens it for writing. If the caller has left by
	// then, it removes the file again. The error is fs.ErrNotExist if the directory is missing.
	Create(ctx context.Context, name string) (TempFile, error)
	// Mkdir creates a directory. The error is fs.ErrNotExist if its parent is missing.
	Mkdir(ctx context.Context, name string) error
	// Delete removes the object of a key. A directory is not an object and stays.
	Delete(ctx context.Context, key string) error
	// Remove removes a file of this process. A missing one is not an error.
	Remove(ctx context.Context, name string) error
	// Publish gives the temporary file of an upload the name of its key, under the conditions of
	// its options. If the response to an earlier request was lost, it recognises its own file under
	// the key and succeeds.
	Publish(ctx context.Context, u *Upload) error

	// Close ends all sessions.
	Close() error
}

// A File is a file that is open for reading. Its methods are safe for concurrent use.
type File interface {
	// ReadAt fails with [ErrClosed] if the protocol closed the file to replace it. A stream then
	// opens it again and continues. It need not be interruptible: it runs in a goroutine of its own.
	io.ReaderAt
	// Stat returns the attributes of the open file.
	Stat(ctx context.Context) (Info, error)
	// Final returns the attributes of the file after its last bytes were read. It may close the
	// file.
	Final(ctx context.Context) (Info, error)
	// Close closes the file in the background, after its pending requests. It may be called at any
	// time and any number of times.
	Close()
}

// A TempFile is the temporary file of an upload, open for writing. Its methods are safe for
// concurrent use.
type TempFile interface {
	// WriteAt writes all of p. It need not be interruptible: it runs in a goroutine of its own.
	WriteAt(ctx context.Context, p []byte, off int64) (int, error)
	// Err returns why the server may have lost what was written, unless Finish succeeded: a
	// [LostError] if the session has ended. nil if it has it all.
	Err() error
	// Reopen opens the file once more, in a session that has not ended.
	Reopen(ctx context.Context) (TempFile, error)
	// Finish makes what was written durable and returns the attributes of the file. A server that
	// may report only at the close that data was not stored must have closed the file by then.
	Finish(ctx context.Context) (Info, error)
	// Discard closes the file and removes it. A missing one is not an error.
	Discard(ctx context.Context) error
	// Close closes the file in the background, after its pending requests. It may be called at any
	// time and any number of times.
	Close()
}

// A SourceWriter is a TempFile that puts the data of parts into its requests without a buffer between.
type SourceWriter interface {
	// WriteFrom writes n bytes at off, which src has at from. It returns soon after ctx ends. An error
	// of src is returned as it is.
	WriteFrom(ctx context.Context, off int64, src *backends.Part, from int64, n int) (int, error)
}

// ErrClosed reports that a file was closed while it was used.
var ErrClosed = errors.New("the file was closed")

// Config describes how a [Share] uses its protocol.
type Config struct {
	// Open opens an object for reading. whole reports that a single request reads all of it. nil if
	// the Backend has an OpenRange of its own.
	Open func(ctx context.Context, obj backends.Object, whole bool) (File, error)
	// ChunkSize is the payload of one ReadAt or WriteAt.
	ChunkSize int
	// Window limits the chunks in flight of one stream.
	Window int
	// Budget, if not nil, limits the chunks beyond the first of all streams together.
	Budget Budget
	// PartSize is that of the Capabilities.
	PartSize int64
	// SpreadParts opens the file for each part of a large object, so that its parts use all
	// sessions.
	SpreadParts bool
}

// A Budget limits the chunks in flight. It is safe for concurrent use.
type Budget interface {
	// Acquire reports whether one more chunk may be in flight. After true, Release follows.
	Acquire() bool
	Release()
}
