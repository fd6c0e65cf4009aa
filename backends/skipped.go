package backends

import (
	"context"
	"strings"
)

// Skipped is a directory entry that a listing found but does not yield.
type Skipped struct {
	Key      string // directories end in "/"
	What     string // a description, such as "a FIFO"
	Vanished bool   // it was removed during the listing
}

// The context carries the function through the wrappers of a Source: few callers want it, and List
// would need a parameter for it in each.
type skippedKey struct{}

// WithSkipped returns a context in which listings call tell for each skipped entry: entries that
// are not objects, and those that another process removed meanwhile. A listing that restarts after
// a failure may report an entry again. Protocols without directories skip nothing.
func WithSkipped(ctx context.Context, tell func(Skipped)) context.Context {
	return context.WithValue(ctx, skippedKey{}, tell)
}

// skippedBelow returns a context that reports the keys of skipped entries without a prefix.
func skippedBelow(ctx context.Context, prefix string) context.Context {
	tell, ok := ctx.Value(skippedKey{}).(func(Skipped))
	if !ok || prefix == "" {
		return ctx
	}
	return WithSkipped(ctx, func(s Skipped) {
		s.Key = strings.TrimPrefix(s.Key, prefix)
		tell(s)
	})
}

// Skip reports a skipped entry to the function set by WithSkipped, if any.
func Skip(ctx context.Context, s Skipped) {
	if tell, ok := ctx.Value(skippedKey{}).(func(Skipped)); ok {
		tell(s)
	}
}
