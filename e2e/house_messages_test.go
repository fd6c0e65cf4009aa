package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stager-dev/stager/e2e/reference"
)

// noTestYet is the reason of messages that can be provoked, and whose test is not written.
const noTestYet = "no test yet"

// unseenMessages are the messages at warn and error that no test sees, each with the reason. The list
// may only become shorter.
var unseenMessages = map[string]string{
	"a checkpoint cannot be committed":                                           noTestYet,
	"a checkpoint is not safe yet":                                               noTestYet,
	"a checkpoint is saved provisionally, and later ones will not make it final": noTestYet,
	"a checkpoint is still not complete, twice as long as between the last two; if it is, call stager commit, or write a marker or a temporary name first": noTestYet,
	"a checkpoint that completes when draining starts would be lost: use a longer grace period, or smaller checkpoints":                                    noTestYet,
	"a checkpoint was abandoned, and a newer one is saved":                                                                                                 noTestYet,
	"a checkpoint was not committed, because it changed":                                                                                                   noTestYet,
	"a checkpoint was written again after it was saved, and the new files are not saved":                                                                   noTestYet,
	"a file cannot be saved":                        noTestYet,
	"a guarantee does not hold on this file system": "takes a file system that does not report open files, such as NFS",
	"a newer checkpoint is not known to be complete and has other files than the one before it, using that one":      noTestYet,
	"a step was committed by a later version of stager, keeping all data that it may need":                           noTestYet,
	"cannot clear the timeout of the lease":                                                                          noTestYet,
	"cannot close a shard":                                                                                           noTestYet,
	"cannot distinguish runs of this job: set STAGER_JOB_UID to the same value on all nodes, different for each job": noTestYet,
	"cannot finish a restore that was killed, because files of it have changed":                                      noTestYet,
	"cannot hold a checkpoint that was removed":                                                                      noTestYet,
	"cannot keep a partial file for resuming":                                                                        noTestYet,
	"cannot list the source again, retrying":                                                                         noTestYet,
	"cannot look for data left by killed uploads":                                                                    noTestYet,
	"cannot mark a provisional checkpoint as final":                                                                  noTestYet,
	"cannot record a step on the volume":                                                                             noTestYet,
	"cannot record a writing of a step on the volume":                                                                noTestYet,
	"cannot record on the volume which step the nodes agreed to restore":                                             noTestYet,
	"cannot record the view on the volume: after a restart, checkpoints held here may not be saved":                  noTestYet,
	"cannot remove a file with wrong bytes":                                                                          noTestYet,
	"cannot remove a snapshot, which takes space":                                                                    noTestYet,
	"cannot remove data of an earlier upload of this step":                                                           noTestYet,
	"cannot remove files fetched before the error, the next run removes them":                                        noTestYet,
	"cannot remove files unpacked from an archive":                                                                   noTestYet,
	"cannot remove orphans of earlier runs":                                                                          noTestYet,
	"cannot remove the list of objects":                                                                              noTestYet,
	"cannot remove the records of a run that fetched nothing":                                                        noTestYet,
	"cannot remove unreferenced data":                                                                                noTestYet,
	"cannot return lease":                                                                                            noTestYet,
	"cannot rewrite the description of a snapshot":                                                                   noTestYet,
	"cannot save the files of this node in their current state":                                                      noTestYet,
	"cannot save the output, trying again":                                                                           noTestYet,
	"cannot scan the output":                                                                                         noTestYet,
	"cannot tell the running stager that this node restores: files written before may count as written afterwards":   noTestYet,
	"cannot tell which of several nodes this is, restoring without agreeing with the other nodes":                    noTestYet,
	"cannot use the list of objects from before the restart, listing the source again":                               noTestYet,
	"cannot write the state, samples may repeat after a kill":                                                        noTestYet,
	"data of this upload was removed by another process, sending it again":                                           noTestYet,
	"file system does not support direct writes, using the page cache":                                               "takes a file system that refuses direct writes",
	"job identity unknown, restoring without agreeing with the other nodes: set STAGER_JOB_UID to the same value on all nodes, different for each job": noTestYet,
	"not all outputs are saved, retrying at the end":                 noTestYet,
	"only a quiet period indicates that this checkpoint is complete": noTestYet,
	"saving failed": noTestYet,
	"source has changed since its list was made, starting again with a new list":                                                                    noTestYet,
	"the checkpoint is held on this node until stager is restarted":                                                                                 noTestYet,
	"the checkpoint is held until the destination accepts it: fix the cause and restart stager, or copy the files from the directory":               noTestYet,
	"the directory for restores contains something that no restore created, leaving it":                                                             noTestYet,
	"the file system does not support locks, so do not run two restores to one directory at the same time":                                          "takes a file system without locks",
	"the file system refuses hard links, and there is no space for copies, so this checkpoint is read in place: do not remove it until it is saved": noTestYet,
	"the kernel dropped notifications for the output directory, scanning it; files renamed in the meantime need other evidence":                     "takes more events than the kernel's queue holds",
	"the nodes of the job did not agree on what to restore, so each takes the newest good step that it finds; give all nodes one --step":            noTestYet,
	"the step that all nodes agreed on is damaged":                                                                                                  noTestYet,
	"the store has a COMMIT of this step without its data, sending it again":                                                                        noTestYet,
	"this checkpoint was committed, but retention has removed it since":                                                                             noTestYet,
	"this store cannot compare and replace COMMIT.json in one step: of two writers of one step at the same instant both may succeed":                noTestYet,
	"waiting for nodes that restored a step before it was damaged; restart them so that they restore again":                                         noTestYet,
}

// A message that no test sees may be logged never, or for the wrong reason. That a test quotes it is
// no proof, but what is quoted nowhere is proved nowhere.
func TestMessagesAreSeenByTests(t *testing.T) {
	messages, err := reference.Messages("..")
	if err != nil {
		t.Fatal(err)
	}
	quoted := quotedByTests(t)
	for _, m := range messages {
		quote := reference.Quote(m, messages)
		seen := false
		for _, text := range quoted {
			// A message of one word is found in too many texts.
			seen = seen || text == "msg="+quote || strings.Contains(quote, " ") && strings.Contains(text, quote)
		}
		reason, excepted := unseenMessages[m]
		switch {
		case !seen && !excepted:
			t.Errorf("no test sees the message %q: assert that it is logged", m)
		case seen && excepted:
			t.Errorf("a test sees the message %q: remove it from unseenMessages", m)
		case excepted && reason == "":
			t.Errorf("the message %q is in unseenMessages without a reason", m)
		}
		delete(unseenMessages, m)
	}
	for m := range unseenMessages {
		t.Errorf("unseenMessages has %q, which stager does not log", m)
	}
}

// quotedByTests returns the strings of all tests and the lines of all scripts, but not those of this
// file and of the generator's tests.
func quotedByTests(t *testing.T) (texts []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && (path == filepath.Join("..", "e2e", "reference") || name == ".git" || name == "bin"):
			return fs.SkipDir
		case name == "house_messages_test.go" || d.IsDir():
		case strings.HasSuffix(name, ".txtar"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			texts = append(texts, string(text))
		case strings.HasSuffix(name, "_test.go"):
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil {
						texts = append(texts, text)
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
