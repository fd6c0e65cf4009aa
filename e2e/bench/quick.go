package bench

import (
	"context"
	"errors"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

// quickPatience keeps all rows of quick within three minutes.
const quickPatience = 15 * time.Second

// quick are rows to compare two versions with, in a few minutes: each reads or writes about half
// of Data.Size or less, beside s5cmd, with the server that costs little.
func quick(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	size, files := lab.Data.Size, lab.Data.Files
	large := Data{Size: size / 2}
	client, s, end, err := startFileServer(ctx, lab, "quick", servers.StartQuick, 3*large.Size) // for what is there, what comes, and the rest
	if err != nil {
		return nil, "", nil, err
	}
	disk, err := newDisk(ctx, lab, large.Size)
	if err != nil {
		return nil, "", nil, errors.Join(err, end.all())
	}
	end = append(end, disk.close)
	memory := s.site(lab, client, "s3, quick, memory", s.server.Endpoint, lab.Dir)
	onDisk := s.site(lab, client, "s3, quick, disk", s.server.Endpoint, disk.path)
	return []Row{
		s.row(memory.reading, large, Goal{}),
		s.row(memory.writing, large, Goal{}),
		s.row(onDisk.reading, Data{Files: 64, FileSize: large.Size / 64}, Goal{}),
		s.row(memory.reading, Data{Files: files, FileSize: 50 << 10}, Goal{}),
		s.row(memory.writing, Data{Files: files, FileSize: 20 << 10}, Goal{}),
	}, quickNote + "; the disk is " + disk.what, end.all, nil
}
