package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint/group"
	"github.com/stager-dev/stager/stager/internal/records"
)

// Among identifies the restoring node within its job. The zero value restores without other
// nodes.
type Among struct {
	Job   string // identity of the job, shared by its nodes and by the daemons that save
	Index int    // of this node
	Count int    // of nodes
	Pod   string // this run of the pod; empty: unknown
	// Empty allows the job to start without a checkpoint.
	Empty bool
	// Patience is how long to wait for nodes that have restored a checkpoint that is now damaged.
	Patience time.Duration
	// Agreed, if not nil, is called with the number of the agreement that this node restores,
	// before a file is written. The Uploaders of the node need it; see [Uploader.Restored].
	Agreed func(ctx context.Context, agreement int)
}

// agrees reports whether there are nodes to agree with.
func (a Among) agrees() bool { return a.Job != "" && a.Count > 1 }

// agreedRestore restores the checkpoint that the nodes of a job agree on. It executes what
// package group decides.
type agreedRestore struct {
	cfg      RestoreConfig
	site     **site // reopened when something was published to it
	machine  *group.Restorer
	listed   []*listed // of the last listing
	passed   []FellBack
	left     int // steps without a COMMIT.json
	done     Restored
	digest   string // of what was restored; empty: nothing
	why      error  // why the agreed checkpoint could not be restored
	reported int    // the agreement that Agreed was called with
	unknowns int    // consecutive writes with an unknown outcome
	waits    time.Time
}

// maxUnknowns limits consecutive writes with an unknown outcome.
const maxUnknowns = 5

// restoreAgreed restores the checkpoint that the nodes of a job agree on. If alone is not empty,
// it is the reason why no agreement is possible, and nothing was done.
func restoreAgreed(ctx context.Context, cfg RestoreConfig, site **site) (done Restored, alone string, err error) {
	a := cfg.Among
	machine, err := group.NewRestorer(group.RestoreConfig{
		Job: a.Job, Index: a.Index, Count: a.Count, Pod: a.Pod, Step: max(cfg.Step, group.Nothing), Empty: a.Empty,
	})
	if err != nil {
		return Restored{}, "", fmt.Errorf("node %d of %d: %w", a.Index, a.Count, err)
	}
	r := &agreedRestore{cfg: cfg, site: site, machine: machine}
	for queue := []group.Event{{What: group.Start}}; len(queue) > 0; queue = queue[1:] {
		for _, act := range machine.Step(queue[0]) {
			if act.Do == group.Tell && act.Report.Topic != group.Waiting {
				return r.end(ctx, act.Report)
			}
			e, err := r.exec(ctx, act)
			if err != nil {
				return Restored{}, "", err
			}
			if e.What != 0 {
				queue = append(queue, e)
			}
		}
	}
	return Restored{}, "", fmt.Errorf("the restore of node %d ended without a decision", a.Index)
}

// end returns the result that a report stands for.
func (r *agreedRestore) end(ctx context.Context, report group.Report) (Restored, string, error) {
	a := report.Agreement
	switch report.Topic {
	case group.RestoreAlone:
		return Restored{}, report.Why, r.reopen()
	case group.Unreadable:
		return Restored{}, "", &backends.Error{
			Op: "restore", Store: r.cfg.Store.Name(), Key: report.Key, Kind: backends.Unsupported,
			Err: fmt.Errorf("cannot read which step the nodes of the job agreed to restore: %s; to restore without the other nodes, use --alone", report.Why),
		}
	case group.RestoreAgreed:
		r.reportAgreed(ctx, a.Number)
		if a.Step != group.Nothing {
			r.cfg.Log.Info("all nodes of the job restore this step", "step", a.Step, "agreement", a.Number, "cause", a.Cause, "by_node", a.By, "nodes", a.Count)
			return r.done, "", nil
		}
		r.cfg.Log.Info("all nodes of the job start without a checkpoint", "agreement", a.Number, "by_node", a.By, "nodes", a.Count)
	}
	if r.why != nil {
		return Restored{}, "", fmt.Errorf("the checkpoint that all nodes agreed to restore is damaged, and there is no other one: %w", r.why)
	}
	err := noneGood(r.cfg, r.passed, r.left)
	if a.Number > 0 {
		err = &backends.Error{
			Op: "restore", Store: r.cfg.Store.Name(), Kind: backends.NotExist,
			Err: backends.InWords(fmt.Sprintf("the nodes of the job agreed to begin without a checkpoint (agreement %d)", a.Number), backends.ErrNothing),
		}
	}
	return Restored{}, "", err
}

// reportAgreed calls Among.Agreed once for each agreement.
func (r *agreedRestore) reportAgreed(ctx context.Context, agreement int) {
	if agreed := r.cfg.Among.Agreed; agreed != nil && agreement > r.reported {
		r.reported = agreement
		agreed(ctx, agreement)
	}
}

// exec executes an action.
func (r *agreedRestore) exec(ctx context.Context, a group.Action) (e group.Event, err error) {
	switch a.Do {
	case group.Tell:
		return e, r.waiting(a.Report)
	case group.Wait:
		return group.Event{What: group.Fired, For: a.For}, pause(ctx, a.After)
	case group.Read:
		e, err = r.read(ctx, a.Key)
	case group.Last:
		e, err = r.last(ctx, a.Key)
	case group.Gather:
		e, err = r.gather(ctx, a.Key)
	case group.Create, group.Replace:
		e, err = r.put(ctx, a)
	case group.Newest:
		e, err = r.newest(ctx, a)
	case group.Fetch:
		r.reportAgreed(ctx, a.Past.Number)
		e, err = r.fetch(ctx, a.Past)
	}
	e.What, e.For = group.Answer, a.For
	return e, err
}

// waiting logs the nodes that this node waits for. It fails after Among.Patience.
func (r *agreedRestore) waiting(report group.Report) error {
	nodes := nodeWords(report.Missing)
	if r.waits.IsZero() {
		r.waits = time.Now()
		r.cfg.Log.Warn("waiting for nodes that restored a step before it was damaged; restart them so that they restore again", "nodes", nodes, "step", report.Step)
	}
	if time.Since(r.waits) <= r.cfg.Among.Patience {
		return nil
	}
	return &backends.Error{
		Op: "restore", Store: r.cfg.Store.Name(), Kind: backends.Unavailable,
		Err: fmt.Errorf("the step that the nodes agreed on is damaged, and %s restored it before: restart them, and all nodes restore step %d", nodes, report.Step),
	}
}

func (r *agreedRestore) read(ctx context.Context, key string) (group.Event, error) {
	body, version, err := records.Read(ctx, r.cfg.Store, key, group.RecordLimit)
	if err != nil && backends.KindOf(err) == backends.NotExist {
		return group.Event{Outcome: group.NotExist}, nil
	}
	return group.Event{Outcome: group.OK, Body: body, Version: string(version)}, err
}

// last reads the newest agreement.
func (r *agreedRestore) last(ctx context.Context, prefix string) (group.Event, error) {
	var newest backends.Object
	number := 0
	for obj, err := range r.cfg.Store.List(ctx, prefix) {
		if backends.KindOf(err) == backends.NotExist {
			break
		}
		if err != nil {
			return group.Event{}, err
		}
		if n := group.AgreementNumber(r.cfg.Among.Job, obj.Key); n > number {
			newest, number = obj, n
		}
	}
	if number == 0 {
		return group.Event{Outcome: group.NotExist}, nil
	}
	body, version, err := records.ReadListed(ctx, r.cfg.Store, newest, group.RecordLimit)
	return group.Event{Outcome: group.OK, Body: body, Version: string(version)}, err
}

func (r *agreedRestore) gather(ctx context.Context, prefix string) (group.Event, error) {
	e := group.Event{Outcome: group.OK}
	for obj, err := range r.cfg.Store.List(ctx, prefix) {
		if backends.KindOf(err) == backends.NotExist {
			break
		}
		if err != nil {
			return e, err
		}
		body, version, err := records.ReadListed(ctx, r.cfg.Store, obj, group.RecordLimit)
		if err != nil {
			return e, err
		}
		e.Records = append(e.Records, group.Record{Key: obj.Key, Body: body, Version: string(version), Outcome: group.OK})
	}
	return e, nil
}

// put creates or replaces a record. If the store does not decide between two writers, put reads
// the record back.
func (r *agreedRestore) put(ctx context.Context, a group.Action) (group.Event, error) {
	var version backends.Version
	var err error
	create := a.Do == group.Create
	if create {
		version, err = records.Create(ctx, r.cfg.Store, a.Key, a.Body)
	} else {
		version, err = records.Replace(ctx, r.cfg.Store, a.Key, a.Body, backends.Version(a.Version))
	}
	if creates, replaces := records.Decides(r.cfg.Store); err == nil && (create && !creates || !create && !replaces) {
		now, rerr := r.read(ctx, a.Key)
		if rerr != nil || string(now.Body) != string(a.Body) {
			return group.Event{Outcome: group.Unknown}, rerr
		}
		version = backends.Version(now.Version)
	}
	if err == nil {
		r.unknowns = 0
		return group.Event{Outcome: group.OK, Version: string(version)}, nil
	}
	switch kind := backends.KindOf(err); {
	case kind == backends.Exist:
		return group.Event{Outcome: group.Exists}, nil
	case kind == backends.Changed:
		return group.Event{Outcome: group.Changed}, nil
	case kind == backends.Permission, kind == backends.Unsupported:
		r.cfg.Log.Info("cannot write a record to the destination", "error", err)
		return group.Event{Outcome: group.Denied}, nil
	case records.Unwritten(err), ctx.Err() != nil, r.unknowns == maxUnknowns:
		return group.Event{}, err
	}
	r.unknowns++
	return group.Event{Outcome: group.Unknown}, nil
}

// newest finds the newest step to restore, and the steps committed since an agreement.
func (r *agreedRestore) newest(ctx context.Context, a group.Action) (e group.Event, err error) {
	for range maxListings {
		if r.listed, err = listSteps(ctx, r.cfg.Store); err != nil {
			return e, err
		}
		var doubt bool
		if e, doubt, err = r.newestListed(ctx, a); err != nil || !doubt {
			return e, err
		}
		if stands, err := stillListed(ctx, r.cfg.Store, r.listed, "", true); err != nil || stands {
			return e, err
		}
	}
	return e, &backends.Error{
		Op: "restore", Store: r.cfg.Store.Name(), Kind: backends.Changed, Err: fmt.Errorf("the destination changed during each of %d tries", maxListings),
	}
}

// newestListed is newest for one listing. doubt reports that a COMMIT was invalid, possibly
// because it was removed after the listing.
func (r *agreedRestore) newestListed(ctx context.Context, a group.Action) (e group.Event, doubt bool, err error) {
	e.Outcome = group.NotExist
	r.passed, r.left = nil, 0
	of := r.listed
	if a.Step >= 0 {
		of = slices.DeleteFunc(slices.Clone(of), func(l *listed) bool { return l.step != a.Step })
	}
	for _, l := range r.listed {
		if !l.committed {
			r.left++
		}
	}
	for c, err := range preferred(ctx, r.cfg.Store, of, r.cfg.AllowProvisional || a.Step >= 0) {
		if err != nil {
			return e, doubt, err
		}
		if c.err != nil {
			doubt = true
			r.passed = append(r.passed, FellBack{c.step, r.cfg.Store.Sub(c.dir).Name(), c.err.Error(), backends.KindOf(c.err)})
			continue
		}
		digest := contentsDigest(c.commit)
		if slices.Contains(a.Bad, digest) {
			r.passed = append(r.passed, FellBack{c.step, r.cfg.Store.Sub(c.dir).Name(), "a node of the job could not restore it", backends.Corrupt})
			continue
		}
		r.passed = append(r.passed, skippedStep(r.cfg, c)...)
		e.Outcome, e.Found = group.OK, group.Found{Step: c.step, Dir: c.dir, Digest: digest}
		break
	}
	if a.Past.Number == 0 {
		return e, doubt, nil
	}
	for l, err := range newestFirst(ctx, r.cfg.Store, r.listed) {
		if err != nil {
			return e, doubt, err
		}
		if l.commitErr != nil {
			continue
		}
		c := candidateOf(l)
		if c.Dir == a.Past.Dir && c.Digest == a.Past.Digest {
			break
		}
		if e.Since = append(e.Since, c); a.Past.ProvedBy(c) {
			break
		}
	}
	return e, doubt, nil
}

func candidateOf(l *listed) group.Candidate {
	return group.Candidate{
		Found:  group.Found{Step: l.step, Dir: l.dir, Digest: contentsDigest(l.commit)},
		Joined: l.commit.Group, Restored: l.commit.Restored,
	}
}

// fetch restores the checkpoint of an agreement.
func (r *agreedRestore) fetch(ctx context.Context, a group.Agreement) (group.Event, error) {
	if r.digest != "" && r.digest == a.Digest {
		return group.Event{Outcome: group.OK}, nil
	}
	for range maxListings {
		again, err := r.fetchListed(ctx, a)
		switch {
		case err == nil:
			return group.Event{Outcome: group.OK}, nil
		case again:
			r.cfg.Log.Info("destination changed during the restore, listing it again", "error", err)
		case !bad(err) || isLocal(err):
			return group.Event{}, err
		default:
			r.why = err
			r.cfg.Log.Warn("the step that all nodes agreed on is damaged", "step", a.Step, "error", err)
			return group.Event{Outcome: group.Corrupt}, nil
		}
		if r.listed, err = listSteps(ctx, r.cfg.Store); err != nil {
			return group.Event{}, err
		}
	}
	return group.Event{}, backends.Errorf(backends.Changed, "restore", a.Dir, "the destination changed during each of %d tries", maxListings)
}

// fetchListed restores the checkpoint of an agreement from the current listing. again reports
// that the checkpoint was rewritten meanwhile.
func (r *agreedRestore) fetchListed(ctx context.Context, a group.Agreement) (again bool, err error) {
	if r.listed == nil {
		if r.listed, err = listSteps(ctx, r.cfg.Store); err != nil {
			return false, err
		}
	}
	i := slices.IndexFunc(r.listed, func(l *listed) bool { return l.dir == a.Dir && l.committed })
	if i < 0 {
		return false, backends.Errorf(backends.NotExist, "restore", a.Dir, "it was removed after the nodes agreed on it")
	}
	l := r.listed[i]
	commit, err := l.read(ctx, r.cfg.Store)
	if err != nil {
		return false, err
	}
	if contentsDigest(commit) != a.Digest {
		return false, backends.Errorf(backends.Changed, "restore", a.Dir, "other files were committed after the nodes agreed on it")
	}
	if err := r.reopen(); err != nil {
		return false, err
	}
	c := choice{listed: l, commit: commit}
	restored, err := fetch(ctx, r.cfg, c, *r.site)
	if err == nil {
		return false, r.publish(ctx, c, restored, a)
	}
	if !bad(err) || isLocal(err) {
		return false, err
	}
	now, lerr := r.cfg.Store.Stat(ctx, a.Dir+"/"+commitKey)
	if lerr == nil && now.Version != l.version {
		return true, err
	}
	return false, err
}

// publish moves the files to their final place.
func (r *agreedRestore) publish(ctx context.Context, c choice, commit Commit, a group.Agreement) error {
	r.done = restoredOf(r.cfg, c, commit, r.passed)
	r.done.Agreement = a.Number
	if err := (*r.site).publish(ctx, r.done, commit.Files); err != nil {
		return err
	}
	r.digest = a.Digest
	return nil
}

// reopen opens the site again if an earlier agreement was restored there.
func (r *agreedRestore) reopen() error {
	if r.digest == "" {
		return nil
	}
	(*r.site).close()
	*r.site, r.digest = nil, ""
	site, err := openSite(r.cfg)
	*r.site = site
	return err
}

// contentsDigest identifies what a COMMIT restores. It stays the same when the COMMIT is replaced
// by one with the same files, as when a provisional COMMIT becomes final.
func contentsDigest(c *Commit) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d\n", c.Step, c.SamplesSeen)
	lines := make([]string, len(c.Files))
	for i, f := range c.Files {
		lines[i] = fmt.Sprintf("%d %q %d %s\n", f.Node, f.Path, f.Size, f.Digest)
	}
	slices.Sort(lines)
	_, _ = io.WriteString(h, strings.Join(lines, "")) // a hash never fails
	if cursors, err := json.Marshal(c.Cursors); err == nil {
		_, _ = h.Write(cursors) // as above
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
