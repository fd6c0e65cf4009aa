package soak

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// exitNone is stager's exit code when no step is committed.
const exitNone = 66

// saver is a daemon that saves checkpoints, with a trainer that writes them and a checker that restores.
type saver struct {
	*node
	url, out string
	back     string // a directory for what is restored
	every    time.Duration
	written  int64        // the newest step that is complete
	restored atomic.Int64 // the newest step that was restored
}

func (s *soak) newSaver(n *node) *saver {
	v := &saver{node: n, url: "s3://" + Bucket + "/" + n.name + "/", out: filepath.Join(n.dir, "out"), back: filepath.Join(n.Work, n.name+".back"), every: 1500 * time.Millisecond}
	err := errors.Join(os.MkdirAll(v.out, 0o755), os.MkdirAll(v.back, 0o755), n.plan(fmt.Sprintf(`  outputs:
  - {name: ckpt, path: %s, destination: %q, quietPeriod: 1h, keep: {last: 3}, deadline: 2m, credentials: {secret: %s}}
`, v.out, v.url, secret)))
	if err != nil {
		s.breach("%v", err)
	}
	return v
}

// contents are the files of a step, the same whenever they are asked for.
func (v *saver) contents(step int64) map[string][]byte {
	files := make(map[string][]byte)
	for i, size := range []int{192 << 10, 32 << 10, 32 << 10, 32 << 10, 100, 0} {
		var key [32]byte
		copy(key[:], v.name)
		binary.LittleEndian.PutUint64(key[16:], uint64(step))
		key[24] = byte(i)
		p := make([]byte, size)
		_, _ = rand.NewChaCha8(key).Read(p) // it has no errors
		files[fmt.Sprintf("rank-%d/model-%d.pt", i%2, i)] = p
	}
	files["frozen.bin"] = bytes.Repeat([]byte("frozen"), 16<<10)
	return files
}

// train writes a checkpoint now and then, and removes those before the last two. When the disk is full
// it removes the one that it cannot write, as a trainer does that catches the error.
func (v *saver) train(ctx context.Context) error {
	var kept []string
	for step := int64(1); pause(ctx, v.every); step++ {
		dir := filepath.Join(v.out, fmt.Sprintf("step-%d", step))
		switch err := v.write(dir, step); {
		case errors.Is(err, unix.ENOSPC):
			v.count("checkpoints that the trainer could not write")
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		v.written = step
		if kept = append(kept, dir); len(kept) > 2 {
			if err := os.RemoveAll(kept[0]); err != nil {
				return err
			}
			kept = kept[1:]
		}
	}
	return nil
}

func (v *saver) write(dir string, step int64) error {
	for name, p := range v.contents(step) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, p, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, ".ready"), nil, 0o644)
}

// restoreOften restores the newest step at random moments. Every third command is killed on its way.
func (v *saver) restoreOften(ctx context.Context) error {
	for n := 0; pause(ctx, v.between(2*time.Second)); n++ {
		if n%3 == 2 {
			if err := v.killRestore(ctx); err != nil {
				return err
			}
			continue
		}
		if _, err := v.restore(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restore restores the newest step and compares every byte. It returns the step, -1 if there is none.
func (v *saver) restore(ctx context.Context) (int64, error) {
	dir := filepath.Join(v.back, "restored")
	defer os.RemoveAll(dir)
	cmd := v.command("restore", "--output=json", v.url, dir)
	var said, out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	p, err := start(cmd)
	if err != nil {
		return -1, err
	}
	atLeast := v.restored.Load()
	select {
	case <-p.done:
	case <-ctx.Done():
		p.kill()
		return -1, nil
	}
	switch code := cmd.ProcessState.ExitCode(); {
	case code == exitNone && atLeast == 0:
		return -1, nil
	case code != 0:
		v.breach("%s: restore ended with code %d\n%s", v.name, code, said.String())
		return -1, nil
	}
	step, err := v.compare(dir)
	if err != nil {
		v.breach("%s: what was restored is wrong: %v", v.name, err)
	} else if step < atLeast {
		v.breach("%s: step %d was restored, and step %d had been before", v.name, step, atLeast)
	}
	v.restored.Store(max(step, atLeast))
	v.count("restores compared")
	return step, nil
}

// killRestore kills a restore. The directory must then be missing or whole.
func (v *saver) killRestore(ctx context.Context) error {
	dir := filepath.Join(v.back, "killed")
	p, err := start(v.command("restore", v.url, dir))
	if err != nil {
		return err
	}
	pause(ctx, v.between(20*time.Millisecond))
	p.kill()
	v.count("restores killed")
	if _, err := os.Stat(dir); err == nil {
		if _, err := v.compare(dir); err != nil {
			v.breach("%s: a restore that was killed left a directory that is not whole: %v", v.name, err)
		}
	}
	temporary, err := filepath.Glob(filepath.Join(v.back, ".stager-restore-*"))
	for _, path := range append(temporary, dir) {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// compare compares a directory with the step that it says it is.
func (v *saver) compare(dir string) (int64, error) {
	var about struct {
		Step  int64
		Files []string
	}
	text, err := os.ReadFile(filepath.Join(dir, "RESTORED.json"))
	if err == nil {
		err = json.Unmarshal(text, &about)
	}
	if err != nil {
		return -1, err
	}
	want := v.contents(about.Step)
	for name, p := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return about.Step, fmt.Errorf("step %d: %w", about.Step, err)
		}
		if !bytes.Equal(got, p) {
			return about.Step, fmt.Errorf("step %d: %s has %d bytes, and not the %d that were written", about.Step, name, len(got), len(p))
		}
	}
	for _, name := range about.Files {
		if _, known := want[name]; !known {
			return about.Step, fmt.Errorf("step %d has %s, which the trainer did not write", about.Step, name)
		}
	}
	if !slices.Contains(about.Files, "frozen.bin") {
		return about.Step, fmt.Errorf("step %d does not list frozen.bin", about.Step)
	}
	return about.Step, nil
}
