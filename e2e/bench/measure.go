package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Sample is what one run took.
type Sample struct {
	Wall time.Duration `json:"wall"`
	CPU  time.Duration `json:"cpu"` // of the process and its children, user and system
	RSS  int64         `json:"rss"` // at its peak, in bytes

	Reading *Reading `json:"reading,omitempty"` // of a trainer
}

// Reading is what a trainer saw, in seconds.
type Reading struct {
	Images  int      `json:"images"`
	Seconds float64  `json:"seconds"`           // from the loop's begin to its end
	First   float64  `json:"first"`             // of these, until the first batch
	Waited  float64  `json:"waited"`            // and for all others, whatever it was for
	Starved *float64 `json:"starved,omitempty"` // by stager's own count: its workers waited for shards and held none
	OnDisk  int64    `json:"onDisk"`            // bytes, at the most
	Busy    float64  `json:"busy"`              // of all cores, by whatever runs, the store included: from 0 to 1
}

// read adds what the trainer left in path.
func (s *Sample) read(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s.Reading = new(Reading)
	return json.Unmarshal(text, s.Reading)
}

// MeasureFlag is the first argument of the measuring process.
const MeasureFlag = "-measure"

// measure runs a command to its end. It does so from a process of its own: the kernel
// counts into a child's peak what its parent had when it was started, and that must be
// little.
func measure(cmd *exec.Cmd) (Sample, error) {
	self, err := os.Executable()
	if err != nil {
		return Sample{}, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return Sample{}, err
	}
	defer r.Close()
	defer w.Close()
	if cmd.Err != nil {
		return Sample{}, cmd.Err
	}
	outer := exec.Command(self, append([]string{MeasureFlag, cmd.Path}, cmd.Args[1:]...)...) //nolint:noctx // cut short it would be no measurement
	outer.Dir, outer.Env, outer.ExtraFiles = cmd.Dir, cmd.Env, []*os.File{w}
	outer.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	outer.Stdout, outer.Stderr = &said, &said
	if err := outer.Run(); err != nil {
		return Sample{}, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, said.String())
	}
	var s Sample
	return s, json.NewDecoder(r).Decode(&s)
}

// Measure is the measuring process: it runs the command args, and writes the Sample to
// descriptor 3.
func Measure(args []string) error {
	result := os.NewFile(3, "result")
	if len(args) == 0 || result == nil {
		return errors.New("this is for the bench itself")
	}
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // cut short it would be no measurement
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return err
	}
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return json.NewEncoder(result).Encode(Sample{
		Wall: time.Since(start), RSS: used.Maxrss << 10,
		CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
	})
}
