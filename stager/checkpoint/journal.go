package checkpoint

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// A journal records which files of an upload have been sent, and the resume tokens of those in
// progress. A later attempt or process then does not send them again. A journal is a hint: an
// entry counts only if the store has the same version of the object, or the same bytes in its
// parts. A nil journal records nothing.
type journal struct {
	mu   sync.Mutex // guards all below
	sent map[string]sentFile
	file *os.File // lines are appended; nil when it cannot be written
}

type sentFile struct {
	Key     string           `json:"key"`
	Digest  string           `json:"digest"`
	Version backends.Version `json:"version"`
	Begun   string           `json:"begun,omitempty"` // for CreateOptions.Resume; there is no digest then
	ID      string           `json:"id,omitempty"`    // of the upload in progress
}

// openJournal reads the journal at name and opens it for appending. It ignores a line that was
// cut off by a kill, and everything after it.
func openJournal(root *os.Root, name string) *journal {
	j := &journal{sent: make(map[string]sentFile)}
	file, err := disk.OpenOwn(root, name, os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return j
	}
	j.file = file
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var s sentFile
		if json.Unmarshal(lines.Bytes(), &s) != nil {
			break
		}
		j.sent[s.Key] = s
	}
	return j
}

func (j *journal) any() bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.sent) > 0
}

// digest returns the digest of what was sent as key, if the store still has that version.
func (j *journal) digest(key string, there backends.Object) (string, bool) {
	if j == nil || there.Key == "" {
		return "", false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.sent[key]
	return s.Digest, ok && s.Digest != "" && s.Version == there.Version
}

// resuming returns the options for sending key. They resume an earlier attempt if there was one.
func (j *journal) resuming(key string) (opts backends.CreateOptions) {
	if j == nil {
		return opts
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	opts.Resume = j.sent[key].Begun
	opts.Begun = func(id, token string) { j.add(sentFile{Key: key, Begun: token, ID: id}) }
	return opts
}

// incomplete returns the IDs of the uploads that were started and not finished, by key.
func (j *journal) incomplete() map[string]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	ids := make(map[string]string)
	for key, s := range j.sent {
		if s.Begun != "" && s.ID != "" {
			ids[key] = s.ID
		}
	}
	return ids
}

// abandon discards the entry of key in this process. The next one finds it again.
func (j *journal) abandon(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.sent, key)
}

func (j *journal) note(key, digest string, version backends.Version) {
	if j != nil {
		j.add(sentFile{Key: key, Digest: digest, Version: version})
	}
}

func (j *journal) add(s sentFile) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sent[s.Key] = s
	if line, err := json.Marshal(s); err == nil && j.file != nil {
		_, _ = j.file.Write(append(line, '\n')) // a hint
	}
}

// forget discards all entries, so that everything is sent again.
func (j *journal) forget() {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.sent)
	if j.file != nil {
		_ = j.file.Truncate(0) // a hint
	}
}

func (j *journal) close() {
	if j != nil && j.file != nil {
		_ = j.file.Close() // a hint
	}
}
