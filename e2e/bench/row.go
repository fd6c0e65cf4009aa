package bench

import (
	"context"
	"io"
	"os/exec"
	"slices"
	"time"
)

// Row is one line of the table.
type Row struct {
	Store string // with its mode: "smb, signed"
	Work  string // "get 1 GiB"
	Peer  string // whose command Peer's is
	Bytes int64  // that one run moves
	Files int64  // in which they are, where they are many
	Goal  Goal   // beside that of all rows

	// Reset makes all as it was before a run. What it makes is not measured.
	Reset func(ctx context.Context) error
	// Ours and Theirs are the commands, made anew for each run.
	Ours, Theirs Command
	// Rivals are more peers, each with a command and a result of its own.
	Rivals []Rival
	// Floor moves the same bytes and leaves out what makes a transfer safe (package floor). Its times say
	// how far any client can come on this machine; nil where there is none.
	Floor Command
	// Reading is the file in which the commands leave a Reading; "" when they are not
	// trainers.
	Reading string
	Loop    bool // the ratio is of the seconds in the Readings, not of wall times
	// Check finds the result of a run to be what it must be.
	Check func(ctx context.Context) error
}

// Rival is another peer of a Row.
type Rival struct {
	Peer    string
	Command Command
	Goal    Goal
}

// Name is by which people choose the row: its first two columns.
func (row Row) Name() string { return row.Store + " " + row.Work }

// HasGoal reports whether the row is to reach something beside one of its peers.
func (row Row) HasGoal() bool {
	return row.Goal != Goal{} || slices.ContainsFunc(row.Rivals, func(r Rival) bool { return r.Goal != Goal{} })
}

// Suite is the rows of one server.
type Suite struct {
	Name  string // that of the protocol
	Named bool   // it runs only when it is named: it needs room for a dozen times Data.Size, or its pairs differ much
	// Patience is how long a row is run until its ratio is sure; 0 stands for minutes.
	Patience time.Duration
	// Start starts the server and gives the rows, which end with ctx, and a note on them
	// for people; stop ends the server.
	Start func(ctx context.Context, lab *Lab) (rows []Row, note string, stop func() error, err error)
	// Listings is in place of Start for a suite of windows over very many objects. It makes so many runs of each
	// whose name contains only.
	Listings func(ctx context.Context, lab *Lab, runs int, only string, tell func(Listing)) (note string, err error)
}

// Lab is what all suites share.
type Lab struct {
	Stager string    // the binary
	Other  string    // another one that copies are measured beside, such as an earlier version; may be empty
	Dir    string    // for all files
	To     string    // where what is got comes to stand
	Disk   string    // a directory that is not in memory, for rows that are of a disk
	Data   Data      // what is moved
	Log    io.Writer // progress, for people

	NoPeers bool // Other takes the place of the other clients

	runs int // that wrote
}

// Command makes the command of a run.
type Command func() *exec.Cmd
