package az

import (
	"context"
	"iter"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// ListLevel implements backends.LevelLister by the delimiter "/".
func (s *store) ListLevel(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return objectstore.Level(prefix,
		func(token string) ([]backends.Object, string, error) {
			opts := container.ListBlobsHierarchyOptions{Prefix: &prefix, Include: container.ListBlobsInclude{Metadata: true}}
			if token != "" {
				opts.Marker = &token
			}
			return s.level(ctx, &opts)
		},
		func(err error) error { return s.explain("list", prefix, err) })
}

// level requests one page, and returns its objects and directories.
func (s *store) level(ctx context.Context, opts *container.ListBlobsHierarchyOptions) (all []backends.Object, next string, err error) {
	c, err := s.access.container(ctx) // for each page, since credentials change
	if err != nil {
		return nil, "", err
	}
	page, err := c.NewListBlobsHierarchyPager("/", opts).NextPage(ctx)
	if err != nil {
		return nil, "", err
	}
	s.heard.Store(true)
	for _, item := range page.Segment.BlobItems {
		if obj := listed(item); !hidden(item.Metadata, obj.Size) {
			all = append(all, obj)
		}
	}
	for _, dir := range page.Segment.BlobPrefixes {
		all = append(all, backends.Object{Key: value(dir.Name)})
	}
	return all, value(page.NextMarker), nil
}
