package checkpoint

import (
	"errors"
	"slices"
	"strings"
)

// A trainer may write a step again after stager has committed it. Hugging Face's Trainer does so at
// SIGTERM, and so does a trainer that goes back to an earlier step. The files of the output
// directory belong to the trainer of this run, so a new writing replaces the COMMIT by
// compare-and-swap, whatever the conflict mode. The conflict mode decides about other writers.
//
// A new writing may overwrite files in place, and the trainer may be killed in the middle. Files of
// two writings must not become one checkpoint. Unless the trainer says that the checkpoint is
// complete, all its files must therefore be newer than those of the COMMIT.

// errPartly reports that the files of a checkpoint are not all of one new writing.
var errPartly = errors.New("this run saved the step before, and nothing proves that all its files were written again, so the saved ones stay; " +
	"stager commit replaces them")

// id returns the id of the upload that c names.
func (c *Commit) id() string { return strings.TrimPrefix(c.Data, dataDir+"/") }

// ownLocked returns the ids of this directory's uploads, with those of the COMMITs that it wrote.
func (u *Uploader) ownLocked() map[string]bool {
	ids := u.idsLocked()
	for _, done := range u.shipped {
		if uploadID.MatchString(done.Upload) {
			ids[done.Upload] = true
		}
	}
	for _, id := range u.own.ids {
		ids[id] = true
	}
	return ids
}

// wrote reports whether this attempt of this uploader wrote c.
func (s *shipper) wrote(c Commit) bool {
	return s.own[c.id()] && c.Attempt == s.attempt && s.nodes <= 1
}

// rewrites reports whether the checkpoint c replaces the COMMIT there, whatever the conflict mode.
func (s *shipper) rewrites(c uploadJob, there Commit) bool {
	switch {
	case !s.wrote(there):
		return false
	case there.Provisional:
		return true
	case c.quiet:
		return false
	}
	return c.because == commitEvidence || c.because == "marker" || c.because == "rename" || c.newerThan(there)
}

// newerThan reports whether every file of c was written after all files of a COMMIT.
func (c uploadJob) newerThan(there Commit) bool {
	last := slices.MaxFunc(there.Files, func(a, b File) int { return a.Modified.Compare(b.Modified) }).Modified
	return !slices.ContainsFunc(c.files, func(f local) bool { return !f.modified().After(last) })
}
