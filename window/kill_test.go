package window

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	killShards = 400
	killEpochs = 4
)

// victim is the process that TestWindowSurvivesKillAtAnyTime kills: a window, and readers that log each
// delivery, and each acknowledgement after Ack has returned.
func victim(dir string) error {
	notes, err := os.OpenFile(filepath.Join(dir, "notes"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	cfg := Config{
		Input: "train", Dir: filepath.Join(dir, "window"), Manifest: "p", Items: items(killShards, 4096),
		Size: 40 * 4096, Epochs: killEpochs, Reattach: time.Millisecond,
	}
	cfg.Fetcher = &fake{items: listOf(cfg)}
	w, err := New(cfg)
	if err != nil {
		return err
	}
	var readers sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		readers.Go(func() {
			for {
				l, err := w.Lease(context.Background(), LeaseRequest{Reader: name, Wait: time.Minute, Bound: true})
				if end := (*EndError)(nil); errors.As(err, &end) && end.Epoch < killEpochs-1 {
					continue
				} else if err != nil {
					return
				}
				fmt.Fprintf(notes, "got %d %d\n", l.Epoch, l.Pos)
				if data, err := os.ReadFile(l.Path); err != nil || len(data) != 4096 {
					fmt.Fprintf(notes, "bad %d %d\n", l.Epoch, l.Pos)
				}
				if err := w.Ack(l.ID); err == nil {
					fmt.Fprintf(notes, "ack %d %d\n", l.Epoch, l.Pos)
				}
			}
		})
	}
	err = w.Run(context.Background())
	readers.Wait()
	if s := w.Status(); s.Peak > cfg.Size {
		return fmt.Errorf("took %d bytes of %d", s.Peak, cfg.Size)
	}
	return errors.Join(err, w.Close())
}

func TestMain(m *testing.M) {
	if dir := os.Getenv("STAGER_TEST_VICTIM"); dir != "" {
		if err := victim(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestWindowSurvivesKillAtAnyTime(t *testing.T) {
	dir := t.TempDir()
	kills := 0
	for delay := 10 * time.Millisecond; ; kills, delay = kills+1, delay*5/4 {
		victim := exec.Command(os.Args[0])
		victim.Env = append(os.Environ(), "STAGER_TEST_VICTIM="+dir)
		victim.Stderr = os.Stderr
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		// Later each time, so that the kill hits every phase.
		timer := time.AfterFunc(delay, func() { victim.Process.Kill() }) //nolint:errcheck // it may have ended
		err := victim.Wait()
		if !timer.Stop() {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}

	notes, err := os.Open(filepath.Join(dir, "notes"))
	if err != nil {
		t.Fatal(err)
	}
	defer notes.Close()
	given, acked := map[seq]bool{}, map[seq]bool{}
	for lines := bufio.NewScanner(notes); lines.Scan(); {
		var what string
		var a seq
		if _, err := fmt.Sscan(lines.Text(), &what, &a.epoch, &a.pos); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		given[a] = true
		switch {
		case what == "bad":
			t.Errorf("%v was not whole", a)
		case what == "got" && acked[a]:
			t.Errorf("%v came again after it was acknowledged", a)
		case what == "ack" && acked[a]:
			t.Errorf("%v was acknowledged twice", a)
		case what == "ack":
			acked[a] = true
		}
	}
	// A kill between Ack and its log record leaves an acknowledgement without a record: at most one
	// per reader.
	silent := 0
	for epoch := range killEpochs {
		for pos := range killShards {
			if a := (seq{epoch, pos}); !given[a] {
				t.Errorf("%v was never delivered", a)
			} else if !acked[a] {
				silent++
			}
		}
	}
	if silent > 3*kills {
		t.Errorf("%d were never acknowledged, want at most %d after %d kills", silent, 3*kills, kills)
	}
	t.Logf("%d kills, %d acknowledgements without a note", kills, silent)
}
