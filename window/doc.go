// Package window keeps a bounded directory filled with the shards that readers will
// want next, and empties it behind them.
//
// Start with [New], which takes a plan (items, and their order in each epoch) and a
// directory, and [Window.Run], which fills it. Readers then take shards in one of two
// ways: by [Window.Lease] and [Window.Ack], which an API offers them, or by verbs on
// files alone. The package knows no store and no network: it asks a [Fetcher].
//
// The life of one position of the plan:
//
//  1. Planned. It is the next in the order of (epoch, position).
//  2. Reserved. Its full size is taken out of the budget, before its first byte.
//  3. Fetching. The Fetcher fills its incoming file.
//  4. Verifying. The window checks what was fetched against the plan.
//  5. Ready. It lies whole in the directory; when its epoch is the current one it is
//     shown in ready/, by rename.
//  6. Leased. One reader has it. It comes back to Ready when the reader says no, or
//     dies.
//  7. Acked. It is not wanted any more. Its name goes away; the file may stay for its
//     position in the next epoch (Config.Reuse), which is Ready then.
//  8. Zombie. Somebody still has the file open: its bytes count until they don't.
//  9. Freed. Its bytes are free.
//
// Aside of this stand Quarantined, a position that cannot be delivered, and
// Skipped, one that was given up as Config.OnBad allows. Table moves in state.go
// has all the moves, and one function makes them.
//
// With Config.Groups each of several groups of readers gets every shard; groups.go
// tells how.
//
// # On disk
//
//	<dir>/ready/e0003-00000128-NAME   position 128 of epoch 3, mode 0444
//	<dir>/ready/e0003.END             epoch 3 was delivered and acknowledged, whole
//	<dir>/claimed/<reader>/…          a reader renamed it here: it holds it
//	<dir>/done/…                      a reader renamed it here: it is acknowledged
//	<dir>/.stager/incoming/           files on their way
//	<dir>/.stager/whole/              Ready, and of an epoch that has not begun
//	<dir>/.stager/held/               a second link to each file that is shown
//	<dir>/.stager/doomed/             files without another name that somebody has open
//	<dir>/.stager/leaving/            directories out of sight, that are being removed
//	<dir>/.stager/journal             acknowledgements, leases, ends told
//	<dir>/.stager/plan                the plan that the state belongs to
//	<dir>/.stager/cursor              where to go on, from Rewind until it is done
//	<dir>/.stager/reports/            how the positions of the last epochs were settled
//
// The directory ready/ is writable by all (0777, not sticky), because a reader that
// runs as another user acknowledges by rename or unlink there; claimed/ and done/
// are 0777 and sticky, so that readers cannot disturb each other.
//
// The link in held/ is what makes a reader's unlink safe to see: a file that has a
// name in held/ and no other is one that a reader removed, which is an
// acknowledgement, also when no stager was running at that moment. It also keeps the
// bytes of a file countable that is unlinked and still open.
//
// An item may be a directory of files (Item.Tree, of which Item.Size may be a bound), which comes and goes as one: it is shown
// by one rename, taken, moved and removed whole, and its room is free when nobody has any
// of its files open. What a reader put into it stays, in done/.
//
// # What holds
//
// A lease gives the lowest position that nobody has been given, and waits for it: the
// sequence is the plan's, whatever arrives first (unless Config.AnyOrder).
//
// What is on disk is the truth, the journal a hint: without it shards are delivered
// again, never lost. A file that is visible is whole and verified. The sum of
// incoming, ready, leased and lingering bytes never passes Config.Size. Nothing is
// deleted that the window did not make, nor while the kernel says that somebody has
// it open (release "rolling" takes the name away earlier, by design). After a boot of
// the machine, files are fetched again: they were not synced, so they are not trusted.
// The journal is synced every few seconds, so that a loss of power costs the position no
// more than that.
package window
