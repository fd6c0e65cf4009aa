package backends

import (
	"context"
	"io"
	"iter"
	"maps"
	"slices"
)

// Renamed returns a store of some objects of s under other keys, the keys of the map. It has no
// other objects, cannot be written to, and shares the connections and limits of s. name replaces the
// name of s.
func (s *Store) Renamed(name string, objects map[string]Object) *Store {
	other := *s
	other.name, other.self, other.prefix, other.dir, other.parts = name, "", "", true, nil
	other.backend = renamed{s.backend, s.prefix, objects}
	return &other
}

type renamed struct {
	Backend
	prefix  string
	objects map[string]Object
}

// List implements Source.
func (r renamed) List(_ context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(r.objects)) {
			obj := r.objects[key]
			obj.Key = key
			if len(key) >= len(prefix) && key[:len(prefix)] == prefix && !yield(obj, nil) {
				return
			}
		}
	}
}

// at returns the object with its key in the backend.
func (r renamed) at(op, key string) (Object, error) {
	obj, ok := r.objects[key]
	if !ok {
		return Object{}, Errorf(NotExist, op, key, "%w", ErrNothing)
	}
	obj.Key = r.prefix + obj.Key
	return obj, nil
}

// Stat implements Source.
func (r renamed) Stat(ctx context.Context, key string) (Object, error) {
	obj, err := r.at("stat", key)
	if err == nil {
		obj, err = r.Backend.Stat(ctx, obj.Key)
	}
	obj.Key = key
	return obj, err
}

// OpenRange implements Source.
func (r renamed) OpenRange(ctx context.Context, obj Object, off, n int64) (io.ReadCloser, error) {
	original, err := r.at("read", obj.Key)
	if err != nil {
		return nil, err
	}
	original.Version = obj.Version
	return r.Backend.OpenRange(ctx, original, off, n)
}

// Create fails.
func (r renamed) Create(_ context.Context, key string, _ CreateOptions) (Writer, error) {
	return nil, Errorf(Unsupported, "create", key, "a renamed store can only be read")
}

// Delete fails.
func (r renamed) Delete(_ context.Context, key string) error {
	return Errorf(Unsupported, "delete", key, "a renamed store can only be read")
}
