package s3

import (
	"cmp"
	"context"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/stager-dev/stager/backends"
)

// listBuckets returns the buckets of the account, in all regions.
func listBuckets(ctx context.Context, t backends.Target) (names []string, err error) {
	set, err := parse(t)
	if err != nil {
		return nil, err
	}
	b, opts, err := connect(ctx, t, set)
	if err != nil {
		return nil, err
	}
	defer b.transport.CloseIdleConnections()
	opts.Region = cmp.Or(opts.Region, "us-east-1")
	pages := s3.NewListBucketsPaginator(s3.New(opts), &s3.ListBucketsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, b.explain("list", "", err)
		}
		for _, found := range page.Buckets {
			if found.Name != nil {
				names = append(names, *found.Name)
			}
		}
	}
	return names, nil
}
