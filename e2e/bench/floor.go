package bench

import (
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stager-dev/stager/e2e/floor"
	"github.com/stager-dev/stager/e2e/servers"
)

// FloorFlag is the first argument of the process that is a row's floor.
const FloorFlag = "-floor"

// floorOf is the HTTP server of a site's floors. The zero value has none.
type floorOf struct {
	url          string // of the directory that contains those of the data, ending in "/"
	ca           string // see floor.Job
	large, small int    // connections for large and for small files: about as many as are fastest; 0 for no floor
}

// nearFloor starts a server of Lab.Data. It is the floor of stores with other protocols: their servers read the
// same files and send the same bytes over the same loopback device.
func nearFloor(lab *Lab) (f floorOf, stop func() error, err error) {
	server, err := servers.StartQuick(filepath.Dir(lab.Data.One), "bench")
	if err != nil {
		return floorOf{}, nil, err
	}
	return floorOf{url: server.Endpoint + "/bench/", large: 2, small: 8}, server.Close, nil
}

// command is the floor of a row that gets a set from a directory of the server into the local directory *to, or puts it
// into the server's directory *to. It is nil if there is none.
func (f floorOf) command(d set, from string, to *string, get bool) Command {
	conns := f.small
	if d.files == 0 || d.bytes/d.files > 1<<20 {
		conns = f.large
	}
	if conns == 0 {
		return nil
	}
	return func() *exec.Cmd {
		j := floor.Job{URL: f.url + *to + "/", CA: f.ca, Files: d.dir, Conns: conns}
		if get {
			j.URL, j.To = f.url+from+"/", *to
		}
		self, err := os.Executable()
		cmd := exec.Command(self, append([]string{FloorFlag}, j.Args()...)...) //nolint:noctx // measure runs it
		cmd.Err = err
		return cmd
	}
}
