package trial

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// restartScenes are starts of stager on what a killed process left, while calls fail or power is lost.
var restartScenes = []scene{
	{name: "output of a killed process", prepare: prepareRestart(restartOutput, leaveCheckpoint), run: saveLeftCheckpoint, judge: judgeLeftCheckpoint},
	{
		// The machine was booted since, so that stager writes the stamp of the plan anew. It emptied
		// the file first, and did not sync the journal: a kill or a loss of power then dropped the
		// position.
		name: "window of a killed process", run: runWindow, judge: judgeRestartedWindow, ordered: true,
		prepare: func(dir string, s *stage) error {
			if err := writeShards(dir + "/src"); err != nil {
				return err
			}
			return errors.Join(prepareRestart(windowSpec, readSomeShards)(dir, s), s.anotherBoot(1))
		},
	},
}

const restartOutput = "  outputs:\n  - {name: ckpt, path: MNT/out, destination: \"file://MNT/store/\", quietPeriod: 1h, required: true, deadline: 30s}\n"

// prepareRestart returns a preparation that kills stager after some work.
func prepareRestart(spec string, work func(s *stage, c *apiClient) error) func(dir string, s *stage) error {
	return func(dir string, s *stage) error {
		if spec == restartOutput {
			spec = "  limits: {bandwidth: 1Ki}\n" + spec // it is killed before it has saved anything
		}
		killed := func(c *apiClient) error {
			err := work(s, c)
			c.process.kill()
			return err
		}
		_, err := s.daemon(strings.ReplaceAll(spec, "DIR", dir), killed)
		return err
	}
}

// leaveCheckpoint is a trainer that removes its checkpoint when stager has taken it over.
func leaveCheckpoint(s *stage, c *apiClient) error {
	dir := s.mnt + "/out/step-1"
	if err := writeBodies(dir, "1"); err != nil {
		return err
	}
	if code, err := c.call("POST", "/v1/outputs/ckpt/commit", `{"path":"step-1"}`, nil); err != nil || code != http.StatusAccepted {
		return fmt.Errorf("got %d of a commit (%w), want 202", code, err)
	}
	return os.RemoveAll(dir)
}

func saveLeftCheckpoint(s *stage) (int, error) {
	spec := restartOutput
	if s.brief {
		spec = strings.Replace(spec, "30s", "1s", 1)
	}
	return s.daemon(spec, func(c *apiClient) error {
		_, err := c.call("GET", "/v1/status", "", nil)
		return err
	})
}

func judgeLeftCheckpoint(s *stage, _ []string, _ bool) error {
	steps, err := committedBodies(s, "store")
	if !steps["1"] {
		err = errors.Join(err, fmt.Errorf("the only copy of step 1 is lost: the store has %v", steps))
	}
	return err
}

// restartAcked is how many shards were acknowledged before the kill.
const restartAcked = 3

func readSomeShards(_ *stage, c *apiClient) error {
	for range restartAcked {
		var l leased
		if code, err := c.call("POST", "/v1/inputs/train/lease?reader=r&wait=20s", "", &l); err != nil || code != http.StatusOK {
			return fmt.Errorf("a lease is answered with %d (%w)", code, err)
		}
		if code, err := c.call("POST", "/v1/leases/"+l.Lease+"/ack", "", nil); err != nil || code != http.StatusNoContent {
			return fmt.Errorf("an acknowledgement is answered with %d (%w)", code, err)
		}
	}
	return nil
}

func judgeRestartedWindow(s *stage, marks []string, _ bool) (errs error) {
	after := s.fs.Recorded()
	now := after.Marks(after.Len())
	for i := range lossyShards {
		delivered := has(marks, fmt.Sprintf("delivered %d", i)) || has(now, fmt.Sprintf("delivered %d", i))
		if delivered != (i >= restartAcked) {
			errs = errors.Join(errs, fmt.Errorf("shard %d was delivered after the restart: %v (%d were acknowledged before)", i, delivered, restartAcked))
		}
	}
	return errs
}
