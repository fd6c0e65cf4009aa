package objectstore

import (
	"sync"
	"time"
)

// lateRejection is how long after a change of credentials a store may reject requests that were sent
// before.
const lateRejection = 30 * time.Second

// Rotation detects that the credentials in the files of a Secret were replaced, when the store rejects
// those in use: a key may be revoked as soon as the next one is in the Secret, and the files are read
// again only after minutes. K is what the files have. The zero value is ready. Its methods are safe for
// concurrent use.
type Rotation[K comparable] struct {
	mu       sync.Mutex
	used     K
	replaced time.Time // when used replaced others; zero: it is the first
}

// Use records the credentials of all requests that begin from now on.
func (r *Rotation[K]) Use(k K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k == r.used {
		return
	}
	if r.used != *new(K) {
		r.replaced = time.Now()
	}
	r.used = k
}

// Rejected handles a request that the store did not permit, while the files have k. others reports that
// the files have others than those in use, which the caller is to load before the next request. again
// reports that the request may succeed with other credentials than it was sent with.
func (r *Rotation[K]) Rejected(k K) (others, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k != r.used {
		return true, true
	}
	return false, !r.replaced.IsZero() && time.Since(r.replaced) < lateRejection
}
