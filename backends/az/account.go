package az

import (
	"context"
	"io"
	"iter"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/stager-dev/stager/backends"
)

// containers is an account, which lists its containers and holds no objects.
type containers struct{ *store }

// List yields the containers, with a "/" at the end of each name.
func (c *containers) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		opts := service.ListContainersOptions{Prefix: &prefix}
		for {
			found, err := c.access.clients(ctx)
			if err != nil {
				yield(backends.Object{}, c.explain("list", prefix, err))
				return
			}
			page, err := found.service.NewListContainersPager(&opts).NextPage(ctx)
			if err != nil {
				yield(backends.Object{}, c.explain("list", prefix, err))
				return
			}
			c.heard.Store(true)
			for _, item := range page.ContainerItems {
				obj := backends.Object{Key: value(item.Name) + "/"}
				if p := item.Properties; p != nil {
					obj.ModTime, obj.Version = value(p.LastModified), version(p.ETag)
				}
				if !yield(obj, nil) {
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

// noObjects is the error of everything but a listing.
func noObjects(op, key string) error {
	return backends.Errorf(backends.Invalid, op, key, "the URL names no container: write az://container/directory/; \"stager ls az://\" lists the containers")
}

// Stat implements backends.Source.
func (*containers) Stat(_ context.Context, key string) (backends.Object, error) {
	return backends.Object{}, noObjects("stat", key)
}

// OpenRange implements backends.Source.
func (*containers) OpenRange(_ context.Context, obj backends.Object, _, _ int64) (io.ReadCloser, error) {
	return nil, noObjects("read", obj.Key)
}

// Create implements backends.Sink.
func (*containers) Create(_ context.Context, key string, _ backends.CreateOptions) (backends.Writer, error) {
	return nil, noObjects("create", key)
}

// CreateParts implements backends.PartCreator.
func (*containers) CreateParts(_ context.Context, key string, _ backends.CreateOptions) (backends.PartWriter, error) {
	return nil, noObjects("create", key)
}

// Delete implements backends.Sink.
func (*containers) Delete(_ context.Context, key string) error { return noObjects("delete", key) }

// Sweep implements backends.Sweeper.
func (*containers) Sweep(context.Context, string, func(backends.Orphan) bool) error {
	return noObjects("sweep", "")
}
