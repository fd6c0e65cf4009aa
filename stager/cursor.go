package stager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
)

// rewind makes an input continue from cursors: those of all nodes that had a part of what is now
// this node's part. It returns the input's new cursor.
func (d *Daemon) rewind(ctx context.Context, name string, cursors []window.Cursor) (window.Cursor, error) {
	w, err := d.window(name)
	if err != nil {
		return window.Cursor{}, err
	}
	if w.Beginning() {
		return window.Cursor{}, api.ErrListing
	}
	if d.unconfirmed(name) { // whether the cursors are of this plan is not known yet
		return window.Cursor{}, api.ErrNotYet
	}
	whose, err := stripesOf(d.cfg.Shard, cursors)
	if err != nil {
		return window.Cursor{}, err
	}
	if err := w.Rewind(cursors, func(pos int) int { return whose[pos%plan.Stripes] }); err != nil {
		return window.Cursor{}, err
	}
	for {
		d.mu.Lock()
		changed := d.changed
		d.mu.Unlock()
		again, err := d.window(name)
		switch {
		case err == nil && again != w:
			return again.Cursor(), nil
		case err != nil && !errors.Is(err, api.ErrNotYet):
			return window.Cursor{}, err
		}
		select {
		case <-changed:
		case <-d.drain:
			return window.Cursor{}, window.ErrClosed
		case <-ctx.Done():
			return window.Cursor{}, ctx.Err()
		}
	}
}

// positioned returns the names of the inputs that have a position or will have one: windows whose
// shards are acknowledged.
func (d *Daemon) positioned() (names []string) {
	for _, in := range d.inputs {
		in.mu.Lock()
		absent := in.absent != nil
		in.mu.Unlock()
		if !absent && in.spec.Mode == plan.ModeWindow && in.spec.Window.Release != plan.ReleaseRolling && in.spec.Window.Release != plan.ReleaseNever {
			names = append(names, in.spec.Name)
		}
	}
	return names
}

// cursors returns the cursors of all inputs that have a position and are open, for a checkpoint.
func (d *Daemon) cursors() checkpoint.Cursors {
	all := make(checkpoint.Cursors)
	for _, name := range d.positioned() {
		w, err := d.window(name)
		if err != nil {
			continue // not open yet
		}
		if text, err := json.Marshal(w.Cursor()); err == nil {
			all[name] = text
		}
	}
	return all
}

// reached returns the cursors for the moment at which the trainer had used that many samples.
func (d *Daemon) reached(cursors checkpoint.Cursors, seen int64) checkpoint.Cursors {
	all := make(checkpoint.Cursors)
	for name, text := range cursors {
		all[name] = text
		w, err := d.window(name)
		var c window.Cursor
		if err != nil || json.Unmarshal(text, &c) != nil {
			continue
		}
		if len(cursors) > 1 {
			c.Again = "a count of samples is ambiguous, because there are several inputs"
		} else {
			c = w.Reached(c, seen)
		}
		if c.Again != "" {
			d.log.Info("cannot derive the trainer's position from the checkpoint's count of samples, leased shards repeat after a restore",
				"input", name, "samples_seen", seen, "why", c.Again)
		}
		if text, err := json.Marshal(c); err == nil {
			all[name] = text
		}
	}
	return all
}

// stripesOf returns, for each stripe of the order, which of the cursors covers it. Each stripe of
// this node needs exactly one cursor; two cursors for one stripe are an error.
func stripesOf(own plan.Shard, cursors []window.Cursor) (whose [plan.Stripes]int, err error) {
	var parts []string
	var of []plan.Shard
	for _, c := range cursors {
		part, err := plan.ParseShard(c.Part)
		if err != nil {
			return whose, &window.CursorError{Reason: "a cursor's part: " + err.Error()}
		}
		parts, of = append(parts, c.Part), append(of, part)
	}
	for stripe := range whose {
		whose[stripe] = slices.IndexFunc(of, func(s plan.Shard) bool { return s.Owns(stripe) })
		switch i := whose[stripe]; {
		case i >= 0 && slices.ContainsFunc(of[i+1:], func(s plan.Shard) bool { return s.Owns(stripe) }):
			return whose, &window.CursorError{Reason: fmt.Sprintf("two cursors cover the same positions: their parts are %s; use cursors of the same time, each once", strings.Join(parts, ", "))}
		case i < 0 && own.Owns(stripe):
			return whose, &window.CursorError{Reason: fmt.Sprintf("the cursors do not cover this node's part %v: they have %s; use the cursors of all nodes that had a part of it", own, strings.Join(parts, ", "))}
		}
	}
	return whose, nil
}
