package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stager-dev/stager/e2e/servers"
)

// shardsOf is how many files a checkpoint has. Together they are four times as long as
// the large file.
const shardsOf = 64

// checkpoints are saved to a real server.
func checkpoints(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	files := filepath.Join(lab.Dir, "s3")
	server, err := servers.StartS3(ctx, servers.S3Options{Buckets: []string{"bench"}, Dir: files})
	if err != nil {
		return nil, "", nil, err
	}
	s := site{name: "s3", env: server.Env(), dir: filepath.Join(files, "objects", "bench")}
	stop = stops{func() error { return os.RemoveAll(files) }, server.Close}.all
	rows, err = s.checkpoints(ctx, lab, server.Endpoint)
	return rows, "versitygw; s5cmd 2.3.0", stop, err
}

// checkpointsQuick are saved to a server that costs little.
func checkpointsQuick(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error) {
	server, err := servers.StartQuick(filepath.Dir(lab.Data.Many), "bench")
	if err != nil {
		return nil, "", nil, err
	}
	s := site{name: "s3, quick", env: server.Env(), remove: func(directory string) error { server.Drop(directory + "/"); return nil }}
	rows, err = s.checkpoints(ctx, lab, server.Endpoint)
	return rows, quickNote + "; s5cmd 2.3.0", server.Close, err
}

// checkpoints are the two rows of a checkpoint: saved beside s5cmd, which copies the
// same files, and restored beside prefetch of them.
func (s *site) checkpoints(ctx context.Context, lab *Lab, endpoint string) ([]Row, error) {
	s.lab, s.url = lab, "s3://bench/"
	client, err := peer(ctx, "s5cmd", "github.com/peak/s5cmd/v2", lab.Log)
	if err != nil {
		return nil, err
	}
	data, err := MakeData(filepath.Join(lab.Dir, "checkpoint"), 1, shardsOf, lab.Data.Size/(shardsOf/4))
	if err != nil {
		return nil, err
	}
	s5cmd := copier(client, endpoint, s.env)
	s.put = func(from, to string) *exec.Cmd { return s5cmd(from+"/", s.url+to+"/") }
	what, bytes := fmt.Sprintf(" %d × %s", data.Files, sizeOf(data.FileSize)), data.Files*data.FileSize
	return []Row{s.saving(data.Many, "save"+what, bytes), s.restoring(data.Many, "restore"+what, bytes)}, nil
}

// saving is like writing, into a step's directory.
func (s *site) saving(from, work string, bytes int64) Row {
	to := ""
	return Row{
		Store: s.name, Work: work, Peer: "s5cmd", Bytes: bytes, Goal: Goal{Ratio: 3},
		Reset:  func(context.Context) error { to = s.fresh(); return nil },
		Ours:   func() *exec.Cmd { return s.save(from, to) },
		Theirs: func() *exec.Cmd { return s.put(from, to) },
		Check:  func(context.Context) error { return firstOf(s.holds(to, from), s.drop(to)) },
	}
}

func (s *site) save(from, to string) *exec.Cmd {
	return s.stager("push", "--quiet", "--commit", "--output=json", "--step=1", from, s.at(to))
}

// restoring brings the checkpoint when it is run first, so that no more of them need
// room at once than must.
func (s *site) restoring(from, work string, bytes int64) Row {
	to, data := filepath.Join(s.lab.To, "got"), ""
	return Row{
		Store: s.name, Work: work, Peer: "stager prefetch", Bytes: bytes,
		Reset: func(context.Context) (err error) {
			if data == "" {
				data, err = s.saved(from)
			}
			return firstOf(err, os.RemoveAll(to))
		},
		Ours:   func() *exec.Cmd { return s.stager("restore", "--quiet", s.at("kept"), to) },
		Theirs: func() *exec.Cmd { return s.stager("prefetch", "--quiet", s.at(data), to) },
		Check: func(context.Context) error {
			if err := os.Remove(filepath.Join(to, "RESTORED.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return equal(to, from)
		},
	}
}

// saved brings a checkpoint to the directory kept, and says where its files lie.
func (s *site) saved(from string) (string, error) {
	out, err := s.save(from, "kept").Output()
	if err != nil {
		return "", err
	}
	var commit struct{ Data string }
	if err := json.Unmarshal(out, &commit); err != nil {
		return "", err
	}
	return "kept/step-00000001/" + commit.Data, nil
}
