package checkpoint

import (
	"encoding/json"

	"github.com/stager-dev/stager/window/disk"
)

// shippedName is the file of the hint of what was uploaded.
const shippedName = private + "/shipped"

// rememberLocked records that a checkpoint needs no more work.
func (u *Uploader) rememberLocked(name string, s shipment) {
	u.shipped[name] = s
	u.unwritten = true
}

// leaveLocked drops a snapshot.
func (u *Uploader) leaveLocked(snap *snapshot) {
	u.dropped = append(u.dropped, snap)
	if u.snaps[snap.Step] == snap {
		delete(u.snaps, snap.Step)
	}
	u.notifyLocked()
}

// settle writes to the disk what was decided under Uploader.mu: the hint of what was uploaded, and
// then the removal of snapshots. Whoever remembers or drops one calls settle after releasing mu; the
// next scan does what is left undone.
//
// The hint is first. A process that is killed before it leaves a snapshot, which the next process
// uploads again: it finds the COMMIT of this very upload, and is done. A process that is killed after
// the hint leaves a snapshot too. Without one there is always the hint, so a checkpoint that the
// trainer has not removed is not taken for a new one.
func (u *Uploader) settle() {
	u.settling.Lock() // an older hint must not replace a newer one
	defer u.settling.Unlock()
	u.mu.Lock()
	text, err := []byte(nil), error(nil)
	if u.unwritten {
		text, err = json.Marshal(u.shipped)
	}
	dropped := u.dropped
	u.unwritten, u.dropped = false, nil
	u.mu.Unlock()
	if text != nil {
		err = disk.ReplaceSmall(u.root, shippedName, text, 0o600, false)
	}
	if err != nil {
		u.log.Warn("cannot record what was saved, so it is read again after a restart", "error", err)
	}
	for _, snap := range dropped {
		u.snapshots.drop(snap)
	}
}
