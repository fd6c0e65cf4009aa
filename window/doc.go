// Package window keeps a bounded directory filled with the shards that readers need next, and
// removes them once they are acknowledged.
//
// Call [New] with a plan (items, and their order in each epoch), a directory and a [Fetcher], then
// [Window.Run] to fill the directory:
//
//	w, err := window.New(window.Config{
//		Dir: "/scratch/train", Size: 100 << 30, Epochs: 3,
//		Items: items, Fetcher: fetcher,
//	})
//	if err != nil {
//		return err
//	}
//	defer w.Close()
//	return w.Run(ctx)
//
// Readers acquire shards in one of two ways. They call [Window.Lease] and [Window.Ack], which an
// API exposes. Or they use the file protocol: they open, rename and unlink files in the directory.
// The package contains no code for object stores or networks; the Fetcher does all transfers.
//
// # Life of a position
//
// A position of the plan goes through these states:
//
//  1. Planned. It is the next in the order of (epoch, position).
//  2. Reserved. Its full size is charged to the budget, before its first byte is fetched.
//  3. Fetching. The Fetcher fills its incoming file.
//  4. Verifying. The window checks the fetched file against the plan.
//  5. Ready. The file is complete. Once its epoch is the current one, a rename publishes it in
//     ready/.
//  6. Leased. One reader holds it. It returns to Ready when the reader returns it or dies.
//  7. Acked. It is no longer needed. Its name is removed. The file may be retained for its
//     position in the next epoch (Config.Reuse), which is then Ready.
//  8. Zombie. A process still has the file open. Its bytes count until the file is closed.
//  9. Freed. Its bytes are free.
//
// Two more states end a position that cannot be delivered: Quarantined, and Skipped if Config.OnBad
// allows it. The table moves in state.go lists all transitions; moveLocked makes them.
//
// docs/architecture.md lists the parts of a window's state.
//
// With Config.Groups, each of several groups of readers receives every shard; see groups.go.
//
// # On disk
//
//	<dir>/ready/e0003-00000128-NAME   position 128 of epoch 3, mode 0444
//	<dir>/ready/e0003.END             epoch 3 is completely delivered and acknowledged
//	<dir>/claimed/<reader>/…          a reader renamed it to here and holds it
//	<dir>/done/…                      a reader renamed it to here: it is acknowledged
//	<dir>/.stager/incoming/           files that are being fetched
//	<dir>/.stager/whole/              Ready, but of an epoch that has not started
//	<dir>/.stager/held/               a second link to each published file
//	<dir>/.stager/pending/             files that are open but have no other name
//	<dir>/.stager/leaving/            directories that are being removed
//	<dir>/.stager/journal             acknowledgements, leases, epoch ends that readers received
//	<dir>/.stager/plan                the plan that the state belongs to
//	<dir>/.stager/cursor              where to resume, from Rewind until it is applied
//	<dir>/.stager/reports/            how the positions of the last epochs were finished
//
// The directory ready/ is writable by all users (0777, not sticky), because a reader that runs as
// another user acknowledges by rename or unlink there. claimed/ and done/ are 0777 and sticky, so
// that readers cannot disturb each other.
//
// The link in held/ makes a reader's unlink detectable. A file whose only name is in held/ was
// removed by a reader, which is an acknowledgement, even if stager was not running at that moment.
// The link also keeps the bytes of an unlinked but open file countable.
//
// An item may be a directory of files (Item.Tree, for which Item.Size may be an upper bound). The
// window publishes, leases, moves and removes it as a unit: one rename publishes it, and its space
// is free once no process has any of its files open. Files that a reader adds to it are kept in
// done/.
//
// # Guarantees
//
//   - A lease returns the lowest position that has not been delivered yet, and waits for it. Shards
//     are delivered in the order of the plan, whatever order they are fetched in (unless
//     Config.AnyOrder).
//   - The files on disk are authoritative and the journal is a hint. Without the journal, shards are
//     redelivered but never lost.
//   - A visible file is complete and verified.
//   - The sum of incoming, ready, leased and zombie bytes never exceeds Config.Size.
//   - The window deletes only files that it made, and no file that the kernel reports as open.
//     (Release "rolling" removes the name earlier, by design.)
//   - After a reboot, files are fetched again: they were not synced, so they are not trusted.
//   - The journal is synced every few seconds. A loss of power loses no more progress than that.
package window
