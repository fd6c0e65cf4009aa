package az

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/stager-dev/stager/backends"
)

// listContainers returns the containers of the account.
func listContainers(ctx context.Context, t backends.Target) (names []string, err error) {
	s, err := newStore(t)
	if err != nil {
		return nil, err
	}
	defer s.Close() // it was only read from
	var opts service.ListContainersOptions
	for {
		found, err := s.access.clients(ctx)
		if err != nil {
			return nil, s.explain("list", "", err)
		}
		page, err := found.service.NewListContainersPager(&opts).NextPage(ctx)
		if err != nil {
			return nil, s.explain("list", "", err)
		}
		for _, item := range page.ContainerItems {
			names = append(names, value(item.Name))
		}
		if value(page.NextMarker) == "" {
			return names, nil
		}
		opts.Marker = page.NextMarker
	}
}
