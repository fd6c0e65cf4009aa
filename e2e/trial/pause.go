package trial

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// Pause is a moment of a trial at which readers take no further shard until it ends. What is to
// happen in the middle happens there, however slow the machine is, and however fast the readers.
type Pause struct {
	At   int    `json:"at"`   // acknowledged positions, of all epochs, from which on readers wait
	Over string `json:"over"` // the file that is there when it has ended

	log string // what stager says
	do  func(*Pause) error
}

// End lets readers go on.
func (p *Pause) End() error { return os.WriteFile(p.Over, nil, 0o644) }

// Log is what stager has said.
func (p *Pause) Log() (string, error) {
	text, err := os.ReadFile(p.log)
	return string(text), err
}

// planPauses makes a pause of each moment at which stager is killed, and of the middle.
func (t *trial) planPauses() {
	add := func(part float64, do func(*Pause) error) {
		at := int(math.Ceil(part * float64(len(t.Shards)*t.Epochs)))
		over := filepath.Join(t.Work, "over-"+strconv.Itoa(len(t.pauses)))
		t.pauses = append(t.pauses, &Pause{At: at, Over: over, log: t.log(), do: do})
	}
	for _, part := range t.KillStager {
		add(part, t.killStager)
	}
	if t.Halfway != nil {
		add(0.5, t.Halfway)
	}
	slices.SortStableFunc(t.pauses, func(a, b *Pause) int { return a.At - b.At })
}

// pause waits while one of the pauses lasts.
func (r *Reader) pause(ctx context.Context) error {
	for len(r.Pauses) > 0 {
		switch _, err := os.Stat(r.Pauses[0].Over); {
		case err == nil:
			r.Pauses = r.Pauses[1:]
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if n, err := acknowledged(r.Socket, r.Input); err == nil && n < r.Pauses[0].At {
			return nil
		} // or stager is gone for a while
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// acknowledged is how many positions of an input are acknowledged, in all epochs, as stager says.
func acknowledged(socket, input string) (int, error) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	resp, err := client.Get("http://stager/v1/inputs/" + input)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() // read whole
	var s struct {
		Epoch     int  `json:"epoch"`
		Epochs    int  `json:"epochs"`
		Positions int  `json:"positions"`
		Settled   int  `json:"settled"`
		Done      bool `json:"done"`
	}
	if resp.StatusCode != http.StatusOK {
		return 0, errors.New(resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return 0, err
	}
	if s.Done {
		return s.Epochs * s.Positions, nil
	}
	return s.Epoch*s.Positions + s.Settled, nil
}
