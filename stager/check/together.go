package check

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// Together describes how a destination coordinates the nodes of a job that save one checkpoint.
type Together struct {
	Output string         `json:"output"`
	Store  string         `json:"store"`
	Nodes  int            `json:"nodes"`
	Create bool           `json:"conditionalCreate"` // the store decides which node creates a record
	Guard  backends.Guard `json:"guard"`             // how it decides which node replaces a record; "" if it does not
	Weaker []string       `json:"weaker,omitempty"`  // guarantees that are weaker than with a store that decides
	Broken []string       `json:"broken,omitempty"`  // promises that the store breaks
}

// Err returns an error of kind Invalid if the store breaks a promise.
func (t *Together) Err() error {
	if len(t.Broken) == 0 {
		return nil
	}
	return &backends.Error{Op: "check", Store: t.Store, Kind: backends.Invalid, Err: errors.New(
		"it cannot hold checkpoints of several nodes: " + strings.Join(t.Broken, "; "))}
}

// CreateWords describes how only one node creates a record.
func (t *Together) CreateWords() string {
	if t.Create {
		return "yes, decided by the store in one step"
	}
	return "no, looked for just before"
}

// GuardWords describes how only one node replaces a record.
func (t *Together) GuardWords() string {
	switch t.Guard {
	case backends.GuardServer:
		return "yes, decided by the server in one step"
	case backends.GuardLock:
		return "yes, by a lock of the kernel and a rename"
	case backends.GuardClaim:
		return "yes, by a claim file beside the record"
	}
	return "no, compared just before"
}

// Several tests at a destination what checkpoints of several nodes need. It sends six small
// requests and leaves nothing behind.
func Several(ctx context.Context, store *backends.Store) (*Together, error) {
	capabilities := store.Capabilities()
	t := &Together{Store: store.Name(), Create: capabilities.ConditionalCreate, Guard: capabilities.Guard}
	if !t.Create {
		t.Weaker = append(t.Weaker, "two nodes that create one record at the same instant may both take it for theirs; COMMIT.json is read again before success is reported, so one of them ends with an error")
	}
	switch t.Guard {
	case backends.GuardServer:
	case backends.GuardLock:
		t.Weaker = append(t.Weaker, "nodes on different machines exclude each other only if the file system has locks across machines, as NFS has; on one without, two replacements at the same instant may both succeed")
	case backends.GuardClaim:
		t.Weaker = append(t.Weaker, "a node that dies while it replaces a record holds up the others for "+backends.ClaimTimeout.String())
	default:
		t.Weaker = append(t.Weaker, "of two nodes that replace one record at the same instant both may succeed, and one record is lost; a lost member record is written again with the next heartbeat")
	}
	key := Scratch + strings.ToLower(rand.Text()[:10])
	err := t.try(ctx, store, key)
	if kept := store.Delete(context.WithoutCancel(ctx), key); err == nil {
		err = kept
	}
	return t, err
}

// try creates a key twice and replaces it twice.
func (t *Together) try(ctx context.Context, store *backends.Store, key string) error {
	put := func(text string, opts backends.CreateOptions) (backends.Object, error) {
		return store.PutBytes(ctx, key, []byte(text), opts)
	}
	first, err := put("1", backends.CreateOptions{IfAbsent: true})
	if err != nil {
		return err
	}
	if _, err := put("22", backends.CreateOptions{IfAbsent: true}); err == nil {
		t.Broken = append(t.Broken, "a second create of one key succeeds")
	} else if backends.KindOf(err) != backends.Exist {
		return err
	}
	if first.Version == "" {
		if first, err = store.Stat(ctx, key); err != nil {
			return err
		}
	}
	if _, err := put("333", backends.CreateOptions{IfVersion: first.Version}); err != nil && backends.KindOf(err) != backends.Changed {
		return err
	} else if err != nil && len(t.Broken) == 0 {
		t.Broken = append(t.Broken, "a replacement of the version that is there is refused")
	}
	if _, err := put("4444", backends.CreateOptions{IfVersion: first.Version}); err == nil {
		t.Broken = append(t.Broken, "a replacement of an older version succeeds")
	} else if backends.KindOf(err) != backends.Changed {
		return err
	}
	return nil
}
