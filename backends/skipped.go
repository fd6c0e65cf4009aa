package backends

import "context"

// Skipped is an entry of a directory that a listing found and does not yield.
type Skipped struct {
	Key      string // one of a directory ends in "/"
	What     string // what it is, such as "a FIFO"
	Vanished bool   // it was removed while the directory was listed
}

type skippedKey struct{}

// WithSkipped returns a context in which listings call tell for each entry that they skip:
// what is no object, and what another process removed under way. A listing that begins
// anew after a failure may call it again for the same entry. Protocols without
// directories skip nothing.
func WithSkipped(ctx context.Context, tell func(Skipped)) context.Context {
	return context.WithValue(ctx, skippedKey{}, tell)
}

// Skip is how a protocol reports an entry to whoever asked for that by WithSkipped.
func Skip(ctx context.Context, s Skipped) {
	if tell, ok := ctx.Value(skippedKey{}).(func(Skipped)); ok {
		tell(s)
	}
}
