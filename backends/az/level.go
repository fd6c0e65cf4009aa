package az

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/stager-dev/stager/backends"
)

// ListLevel implements backends.LevelLister by the delimiter "/".
func (s *store) ListLevel(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		opts := container.ListBlobsHierarchyOptions{Prefix: &prefix, Include: container.ListBlobsInclude{Metadata: true}}
		last := ""
		for {
			page, next, err := s.level(ctx, &opts)
			if err != nil {
				yield(backends.Object{}, s.explain("list", prefix, err))
				return
			}
			for _, obj := range page {
				switch {
				case obj.Key == last:
					continue // a directory that is also a blob, or spans two pages
				case obj.Key < last:
					yield(backends.Object{}, backends.Errorf(backends.Unsupported, "list", prefix,
						"the server lists keys out of order (%q after %q), so missing keys cannot be detected", obj.Key, last))
					return
				}
				last = obj.Key
				if !yield(obj, nil) {
					return
				}
			}
			if value(next) == "" {
				return
			}
			opts.Marker = next
		}
	}
}

// level requests one page, and returns its objects and directories in the order of their keys.
func (s *store) level(ctx context.Context, opts *container.ListBlobsHierarchyOptions) (all []backends.Object, next *string, err error) {
	c, err := s.access.container(ctx) // for each page, since credentials change
	if err != nil {
		return nil, nil, err
	}
	page, err := c.NewListBlobsHierarchyPager("/", opts).NextPage(ctx)
	if err != nil {
		return nil, nil, err
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
	slices.SortFunc(all, func(a, b backends.Object) int { return strings.Compare(a.Key, b.Key) })
	return all, page.NextMarker, nil
}
