package stager

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
)

// While a window has only the beginning of its list, its cursors name that beginning, of which no other
// process knows. Positions are the same in the whole list: such a cursor becomes one of the whole list as
// soon as that is known. Only then is it saved.

// listPatience is how long a checkpoint, all of which is sent, waits for the list of an input, so that it
// has the position there. Its commit must not wait for as long as any listing takes.
const listPatience = 2 * time.Minute

// lasting returns cursors that name whole lists, and waits for these. It leaves out inputs whose lists
// are not complete in time, or do not begin as their cursors say.
func (d *Daemon) lasting(ctx context.Context, cursors checkpoint.Cursors) checkpoint.Cursors {
	patience := d.listPatience
	if end, some := ctx.Deadline(); some { // of a drain, which must commit before it
		patience = min(patience, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all := maps.Clone(cursors)
	for name, text := range cursors {
		if begun(text) == "" {
			continue
		}
		if whole := d.awaitList(ctx, name, patience); whole == nil {
			delete(all, name)
		} else if all[name] = renamed(text, whole); all[name] == nil {
			delete(all, name)
		}
	}
	return all
}

// begun returns the name of the beginning that a cursor is about; "" if it is about none.
func begun(text json.RawMessage) string {
	var c window.Cursor
	if json.Unmarshal(text, &c) != nil {
		return ""
	}
	if n, _ := plan.ParseBeginning(c.Manifest); n == 0 {
		return ""
	}
	return c.Manifest
}

// renamed returns a cursor of a beginning as one of the whole list; nil if it is of another list.
func renamed(text json.RawMessage, whole *window.Config) json.RawMessage {
	var c window.Cursor
	if json.Unmarshal(text, &c) != nil || whole.Begins(c.Manifest) == 0 {
		return nil
	}
	c.Manifest = whole.Manifest
	text, err := json.Marshal(c)
	if err != nil {
		return nil
	}
	return text
}

// awaitList returns an input's configuration with its whole list, and waits for it. It returns nil if the
// context or the feeding of inputs ends before.
func (d *Daemon) awaitList(ctx context.Context, name string, patience time.Duration) *window.Config {
	i := slices.IndexFunc(d.inputs, func(in *input) bool { return in.spec.Name == name })
	if i < 0 {
		return nil
	}
	for said := false; ; said = true {
		d.mu.Lock()
		changed := d.changed
		d.mu.Unlock()
		whole, follows := d.inputs[i].list()
		if whole != nil || !follows || d.draining() {
			return whole
		}
		if !said {
			d.log.Info("checkpoint waits until the source of an input is listed, to record its position there", "input", name, "at_most", patience.Round(time.Millisecond))
		}
		select {
		case <-changed:
		case <-d.drain:
		case <-ctx.Done():
			return nil
		}
	}
}

// list returns the configuration of a window with its whole list; nil if there is none, and whether it
// may follow.
func (in *input) list() (whole *window.Config, follows bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.whole, in.err == nil && in.absent == nil
}
