package oss

import (
	"context"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
)

// listBuckets returns the buckets of the account, in all regions.
func listBuckets(ctx context.Context, t backends.Target) (names []string, err error) {
	b, err := newBucket(t)
	if err != nil {
		return nil, err
	}
	defer b.Close() // it was only read from
	for marker := ""; ; {
		opts, err := b.with(ctx, oss.Marker(marker), oss.MaxKeys(perPage))
		if err != nil {
			return nil, b.explain("list", "", err)
		}
		page, err := b.client.Client.ListBuckets(opts...)
		if err != nil {
			return nil, b.explain("list", "", err)
		}
		for _, found := range page.Buckets {
			names = append(names, found.Name)
		}
		if !page.IsTruncated || page.NextMarker == marker {
			return names, nil
		}
		marker = page.NextMarker
	}
}
