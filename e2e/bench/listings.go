package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/stager-dev/stager/e2e/servers"
	"github.com/stager-dev/stager/stager/api"
)

const (
	listingPage   = 100 * time.Millisecond // of the store, for 1,000 keys
	listingShards = 300                    // that are read once the list is complete, before memory is measured
	mostPerKey    = 30                     // bytes on the disk beyond those of the keys
)

// scales are the windows of the suite, and the goals of each.
var scales = []struct {
	objects int
	window  int64
	late    time.Duration // the first lease after the listing alone
	rss     int64
}{
	{1_000_000, 256 << 20, time.Second, 64_000_000},
	{5_000_000, 512 << 20, 2 * time.Second, 96_000_000},
	{10_000_000, 1 << 30, 0, 128_000_000},
}

// Listing is what the window over very many objects took: medians, and the most memory and disk.
type Listing struct {
	Objects int           `json:"objects"`
	Order   string        `json:"order"`
	Window  int64         `json:"window"`  // bytes
	Alone   time.Duration `json:"alone"`   // of a listing by stager du
	First   time.Duration `json:"first"`   // from the start of the process to the first lease
	Listed  time.Duration `json:"listed"`  // to the complete list
	RSS     int64         `json:"rss"`     // at its peak, before it continued elsewhere
	Resume  time.Duration `json:"resume"`  // from a cursor at nine tenths of the objects to its first lease
	Resumed int64         `json:"resumed"` // memory at its peak after that
	OnDisk  int64         `json:"onDisk"`  // of the list; 0: it is not kept
	Keys    int64         `json:"keys"`    // bytes of the keys, of each without what it shares with the one before
	Term    time.Duration `json:"term"`    // from a start after SIGTERM to the first lease
	Kill    time.Duration `json:"kill"`    // after SIGKILL; both at nine tenths of the objects
	Restart int64         `json:"restart"` // memory of these two at its peak
	Missed  []string      `json:"missed,omitempty"`

	late time.Duration
	most int64
}

func (l Listing) goal() string {
	var late string
	if l.late > 0 {
		late = fmt.Sprintf("≤ listing + %v, ", l.late)
	}
	words := []string{fmt.Sprintf("%s≤ %d MB, keys + %d B", late, l.most/1_000_000, mostPerKey)}
	if len(l.Missed) > 0 {
		words = append(words, "missed: "+strings.Join(l.Missed, ", "))
	}
	return strings.Join(words, "; ")
}

// missed tells which goals were not reached.
func (l Listing) missed() (all []string) {
	if l.late > 0 && l.First > l.Alone+l.late {
		all = append(all, fmt.Sprintf("first %.1f s after the listing", (l.First-l.Alone).Seconds()))
	}
	if rss := max(l.RSS, l.Resumed, l.Restart); rss > l.most {
		all = append(all, fmt.Sprintf("RSS %.1f MB", float64(rss)/1e6))
	}
	if l.OnDisk == 0 {
		all = append(all, "the list is not kept")
	} else if each := l.perKey(); each > mostPerKey {
		all = append(all, fmt.Sprintf("%.1f B a key", each))
	}
	return all
}

// perKey is what the list takes for an object beyond its key; 0 if it is not kept.
func (l Listing) perKey() float64 {
	if l.OnDisk == 0 {
		return 0
	}
	return float64(l.OnDisk-l.Keys) / float64(l.Objects)
}

// listings measures windows over very many objects, beside a listing of them alone.
func listings(ctx context.Context, lab *Lab, runs int, only string, tell func(Listing)) (note string, err error) {
	for _, scale := range scales {
		for _, order := range []string{"shuffle", "name"} {
			l := Listing{Objects: scale.objects, Order: order, Window: scale.window, late: scale.late, most: scale.rss}
			if !strings.Contains(l.name(), only) {
				continue
			}
			if l, err = lab.listing(ctx, l, runs); err != nil {
				return "", fmt.Errorf("%s: %w", l.name(), err)
			}
			tell(l)
		}
	}
	return fmt.Sprintf("%v for a page of 1,000 keys like data/part-0001234/img_0000567.jpg, of objects of 3 KiB, from a server in the process that measures; "+
		"the memory is that of the process at its peak, %d shards after the list was complete", listingPage, listingShards), nil
}

// name is what the row is called.
func (l Listing) name() string {
	return fmt.Sprintf("listings, %s objects, order by %s", humanize.Comma(int64(l.Objects)), l.Order)
}

// listing makes the runs of one row.
func (lab *Lab) listing(ctx context.Context, l Listing, runs int) (_ Listing, err error) {
	server, err := servers.StartKeys(l.Objects, listingPage)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	l.Keys = server.FrontCoded()
	var all []Listing
	for range runs {
		w := listedWindow{site: site{lab: lab, env: server.Env()}, dir: filepath.Join(lab.To, "listing")}
		one, err := w.measure(ctx, l)
		if err = errors.Join(err, w.kill(), os.RemoveAll(w.dir)); err != nil {
			return l, err
		}
		fmt.Fprintf(lab.Log, "%s: alone %.1f s, first %.1f s, RSS %.1f MB\n", l.name(), one.Alone.Seconds(), one.First.Seconds(), float64(one.RSS)/1e6)
		all = append(all, one)
	}
	of := func(field func(Listing) time.Duration) time.Duration {
		var times []time.Duration
		for _, one := range all {
			times = append(times, field(one))
		}
		return middle(times)
	}
	l.Alone, l.First = of(func(l Listing) time.Duration { return l.Alone }), of(func(l Listing) time.Duration { return l.First })
	l.Listed = of(func(l Listing) time.Duration { return l.Listed })
	l.Resume = of(func(l Listing) time.Duration { return l.Resume })
	l.Term, l.Kill = of(func(l Listing) time.Duration { return l.Term }), of(func(l Listing) time.Duration { return l.Kill })
	l.OnDisk = all[0].OnDisk
	for _, one := range all {
		l.RSS, l.Resumed, l.Restart = max(l.RSS, one.RSS), max(l.Resumed, one.Resumed), max(l.Restart, one.Restart)
		if one.OnDisk == 0 || l.OnDisk == 0 {
			l.OnDisk = 0
		} else {
			l.OnDisk = max(l.OnDisk, one.OnDisk)
		}
	}
	l.Missed = l.missed()
	return l, nil
}

// listedWindow is a stager with a window over the objects of a Keys.
type listedWindow struct {
	site

	dir string
	run *exec.Cmd
	log bytes.Buffer // of the run
}

func (w *listedWindow) at(name string) string { return filepath.Join(w.dir, name) }

// measure makes one run.
func (w *listedWindow) measure(ctx context.Context, l Listing) (Listing, error) {
	plan := fmt.Sprintf(`apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: bench}
spec:
  inputs:
  - {name: train, source: "s3://bench/data/", path: %s, mode: window, window: {size: %d}, order: {by: %s, epochs: 1}}
`, w.at("win"), l.Window, l.Order)
	if err := firstOf(os.RemoveAll(w.dir), os.MkdirAll(w.dir, 0o755), os.WriteFile(w.at("plan.yaml"), []byte(plan), 0o600)); err != nil {
		return l, err
	}
	alone, err := measure(w.stager("du", "s3://bench/data/"))
	if err != nil {
		return l, err
	}
	l.Alone = alone.Wall
	began := time.Now()
	if l.First, err = w.start(ctx); err != nil {
		return l, err
	}
	if err := w.listed(ctx); err != nil {
		return l, err
	}
	l.Listed = time.Since(began)
	for range listingShards {
		if err := w.read(ctx); err != nil {
			return l, err
		}
	}
	if l.RSS, err = peakMemory(w.run.Process.Pid); err != nil {
		return l, err
	}
	if err := w.resume(ctx, &l); err != nil {
		return l, err
	}
	if info, err := os.Stat(w.at("win/.stager/list")); err == nil {
		l.OnDisk = info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	term, err := w.restart(ctx, syscall.SIGTERM, &l.Term)
	if err != nil {
		return l, err
	}
	kill, err := w.restart(ctx, syscall.SIGKILL, &l.Kill)
	l.Restart = max(term, kill)
	return l, err
}

// resume continues at a cursor near the end, as that of a late checkpoint.
func (w *listedWindow) resume(ctx context.Context, l *Listing) error {
	client := api.Client{Socket: w.at("s")}
	const path = "/v1/inputs/train/cursor"
	var c map[string]any
	if _, _, err := client.Call(ctx, http.MethodGet, path, nil, nil, &c); err != nil {
		return err
	}
	at := l.Objects / 10 * 9
	c["settled"] = map[int][][2]int{0: {{0, at - 1}}}
	delete(c, "leased")
	began := time.Now()
	if _, _, err := client.Call(ctx, http.MethodPut, path, nil, c, nil); err != nil {
		return err
	}
	first, err := w.lease(ctx)
	if err != nil {
		return err
	}
	if l.Resume = time.Since(began); first.Pos != at {
		return fmt.Errorf("the window continued at position %d, not %d", first.Pos, at)
	}
	for range listingShards {
		if err := w.read(ctx); err != nil {
			return err
		}
	}
	l.Resumed, err = peakMemory(w.run.Process.Pid)
	return err
}

// restart ends stager by a signal and starts it again. It returns the memory that the new process took at its
// peak, once it has delivered some shards.
func (w *listedWindow) restart(ctx context.Context, end os.Signal, took *time.Duration) (rss int64, err error) {
	if err := w.run.Process.Signal(end); err != nil {
		return 0, err
	}
	_ = w.run.Wait() // its end is wanted
	if *took, err = w.start(ctx); err != nil {
		return 0, err
	}
	for range listingShards {
		if err := w.read(ctx); err != nil {
			return 0, err
		}
	}
	return peakMemory(w.run.Process.Pid)
}

// start starts stager, and returns how long the first lease took.
func (w *listedWindow) start(ctx context.Context) (time.Duration, error) {
	w.log.Reset()
	w.run = w.stager("run", "-f", w.at("plan.yaml"), "--socket", w.at("s"))
	w.run.Stdout, w.run.Stderr = &w.log, &w.log
	w.run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := w.run.Start(); err != nil {
		return 0, err
	}
	err := w.read(ctx)
	return time.Since(began), err
}

// read leases a shard and acknowledges it, as soon as there is one.
func (w *listedWindow) read(ctx context.Context) error {
	_, err := w.lease(ctx)
	return err
}

func (w *listedWindow) lease(ctx context.Context) (api.LeaseResponse, error) {
	client := api.Client{Socket: w.at("s")}
	for {
		var l api.LeaseResponse
		code, _, err := client.Call(ctx, http.MethodPost, "/v1/inputs/train/lease", url.Values{"wait": {"30s"}}, nil, &l)
		switch {
		case err == nil && code == http.StatusOK && !l.End:
			_, _, err = client.Call(ctx, http.MethodPost, "/v1/leases/"+l.Lease+"/ack", nil, nil, nil)
			return l, err
		case err == nil && code == http.StatusNoContent:
		case api.Unready(err):
			if err := w.alive(ctx); err != nil {
				return l, err
			}
		default:
			return l, fmt.Errorf("a lease is answered with %d %+v: %w", code, l, err)
		}
	}
}

// alive waits a moment, and fails if stager has ended.
func (w *listedWindow) alive(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Millisecond):
	}
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.run.Process.Pid))
	if _, rest, _ := bytes.Cut(state, []byte(") ")); err != nil || bytes.HasPrefix(rest, []byte("Z")) {
		_ = w.run.Wait() // it says all that it has to say before
		return fmt.Errorf("stager has ended: %w\n%s", err, w.log.Bytes())
	}
	return nil
}

// listed waits until the list is complete.
func (w *listedWindow) listed(ctx context.Context) error {
	client := api.Client{Socket: w.at("s")}
	for {
		var s api.Snapshot
		if _, _, err := client.Call(ctx, http.MethodGet, "/v1/status", nil, nil, &s); err != nil {
			return err
		}
		if window := s.Inputs[0].Window; window != nil && !window.Beginning {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// kill ends stager at once.
func (w *listedWindow) kill() error {
	if w.run == nil || w.run.Process == nil {
		return nil
	}
	_ = w.run.Process.Kill() // it may have ended
	_ = w.run.Wait()         // killed
	return nil
}

// peakMemory is VmHWM of a process, in bytes.
func peakMemory(pid int) (bytes int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscanf(rest, "%d kB", &bytes); err != nil {
		return 0, fmt.Errorf("VmHWM of process %d: %w", pid, err)
	}
	return bytes << 10, nil
}

// Listings writes the windows over very many objects, as a table of its own.
func (t Table) Listings(all []Listing) {
	if len(all) == 0 {
		return
	}
	mb := func(n int64) float64 { return float64(n) / 1e6 }
	fmt.Fprintln(t.Out, "\n| objects | order | window MiB | listing alone s | first shard after s | list complete s | RSS MB | list on disk MB | B a key beyond its own | at a cursor s | RSS MB | after SIGTERM s | after SIGKILL s | RSS MB | goal |")
	fmt.Fprintln(t.Out, "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|")
	for _, l := range all {
		fmt.Fprintf(t.Out, "| %s | %s | %d | %.1f | %.1f | %.1f | %.0f | %.1f | %.1f | %.2f | %.0f | %.2f | %.2f | %.0f | %s |\n", humanize.Comma(int64(l.Objects)), l.Order, l.Window>>20,
			l.Alone.Seconds(), l.First.Seconds(), l.Listed.Seconds(), mb(l.RSS), mb(l.OnDisk), l.perKey(), l.Resume.Seconds(), mb(l.Resumed), l.Term.Seconds(), l.Kill.Seconds(), mb(l.Restart), l.goal())
	}
}
