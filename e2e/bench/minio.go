package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stager-dev/stager/e2e/servers"
)

// minio moves small files to and from MinIO, beside s5cmd. It takes some minutes to build when it is first needed.
func minio(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	client, err := peer(ctx, "s5cmd", "github.com/peak/s5cmd/v2", lab.Log)
	if err != nil {
		return nil, "", nil, err
	}
	server, err := servers.StartMinIO(ctx, "bench")
	if err != nil {
		return nil, "", nil, err
	}
	if err := server.OpenToAll(ctx, "bench"); err != nil { // the floor signs nothing
		return nil, "", nil, errors.Join(err, server.Close())
	}
	dir := filepath.Join(lab.Dir, "minio")
	stop = stops{func() error { return os.RemoveAll(dir) }, server.Close}.all
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	data, err := MakeData(dir, 1, lab.Data.Files*5/2, 50_000)
	if err != nil {
		return nil, "", nil, err
	}
	endpoint := "http://" + server.Address
	s5cmd := copier(client, endpoint, server.Env())
	s := &site{
		lab: lab, name: "s3, MinIO", url: "s3://bench/", env: server.Env(), peer: "s5cmd",
		get: func(from, to string) *exec.Cmd { return s5cmd("s3://bench/"+from+"/*", to+"/") },
		put: func(from, to string) *exec.Cmd { return s5cmd(from+"/", "s3://bench/"+to+"/") },
		remove: func(directory string) error {
			cmd := exec.CommandContext(ctx, client, "--log=error", "rm", "s3://bench/"+directory+"/*")
			cmd.Env = append(append(os.Environ(), server.Env()...), "S3_ENDPOINT_URL="+endpoint)
			return quietly(cmd)
		},
		floor: floorOf{url: endpoint + "/bench/", small: 8},
	}
	if err := quietly(s.stager("push", "--quiet", data.Many, s.at("many"))); err != nil {
		return nil, "", nil, err
	}
	get, put := s.reading(data.many()), s.writing(data.many())
	get.Goal, put.Goal = Goal{Ratio: 1.8}, Goal{Ratio: 1.6}
	return []Row{get, put}, "MinIO, whose files are in memory; s5cmd 2.3.0", stop, nil
}
