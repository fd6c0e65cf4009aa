// Package transfer copies objects from one store to another, through memory.
//
// [Copy] is where to begin. It lists both sides, refuses what cannot end well, and
// sends what is missing; [Verify] lists both sides and tells what is missing. Several
// processes may each copy one shard of the same source, at once.
//
// The life of a copy:
//
//  1. Both listings are walked side by side, and each object of the source is judged:
//     absent, there, different, or unsure. Nothing has been written yet, and nothing is
//     when something different is in the way.
//  2. They are walked again, and workers copy what is absent. An object is read in
//     blocks, several at once, each summed as it arrives; the last block is handed on
//     only if all of them have the checksum that the source tells. The destination
//     publishes it in one step, and what it tells of it is compared as well.
//  3. What was copied is noted in a record at the destination.
//
// Whether an object is there already: it is when the record holds the versions of
// both sides as they are now, or when both tell the same checksum. Otherwise, if the
// sizes agree, both are read and compared. So the record is a hint that saves reading:
// losing it costs time, never correctness.
//
// Memory is Config.Buffers, some megabytes for each connection, and 16 bytes for each
// object in the record.
package transfer
