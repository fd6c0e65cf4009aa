// Package transfer copies objects from one store to another, through memory.
//
// Start with [Copy]. It lists both sides, refuses a copy that cannot succeed, and sends the objects
// that are missing. [Verify] lists both sides and reports what is missing. Several processes may
// each copy one partition of the same source, concurrently.
//
// The steps of a copy:
//
//  1. It walks both listings side by side and classifies each object of the source: absent,
//     present, different, or unsure. Nothing has been written yet, and nothing will be if a
//     different object is in the way.
//  2. It walks them again, and workers copy the absent objects. A worker reads an object in
//     blocks, several at once, and computes the checksum of each as it arrives. It passes on
//     the last block only if all blocks match the checksum that the source reports. The
//     destination publishes the object in one step, and its checksum is compared as well.
//  3. It notes what was copied in a record at the destination.
//
// An object is already present if the record holds the current versions of both sides, or if both
// sides report the same checksum. Otherwise, if the sizes agree, both are read and compared. So the
// record is only a hint that saves reading: losing it costs time, never correctness.
//
// Memory is Config.Buffers (some megabytes for each connection) plus 16 bytes for each object in
// the record.
package transfer
