package checkpoint

import (
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// storeIs reports an error if the store has not the objects that it had before.
func storeIs(t *testing.T, b *mem.Backend, before map[string]string) {
	t.Helper()
	if now := objectsIn(b); !reflect.DeepEqual(now, before) {
		t.Errorf("the store has %v, want what it had: %v", now, before)
	}
}

func objectsIn(b *mem.Backend) map[string]string {
	all := make(map[string]string)
	for _, key := range b.Keys() {
		text, _ := b.Get(key)
		all[key] = string(text)
	}
	return all
}

func TestRehearseRestoreChoosesAsRestoreDoes(t *testing.T) {
	for name, prepare := range map[string]func(b *mem.Backend, cfg *RestoreConfig, dir, data string){
		"the newest":        func(*mem.Backend, *RestoreConfig, string, string) {},
		"a step by number":  func(_ *mem.Backend, cfg *RestoreConfig, _, _ string) { cfg.Step = 1 },
		"a file is missing": func(b *mem.Backend, _ *RestoreConfig, _, data string) { _ = b.Delete(t.Context(), data+"empty") },
		"a file is shorter": func(b *mem.Backend, _ *RestoreConfig, _, data string) { b.Put(data+"model.pt", []byte("short")) },
		"COMMIT is torn": func(b *mem.Backend, _ *RestoreConfig, dir, _ string) {
			b.Put(dir+commitKey, []byte(`{"apiVersion":`))
		},
		"COMMIT is provisional": func(b *mem.Backend, _ *RestoreConfig, dir, _ string) {
			replace(b, dir+commitKey, `"evidence"`, `"provisional": true, "evidence"`)
			replace(b, dir+commitKey, `"path": "empty"`, `"path": "other"`)
		},
		"COMMIT is gone":        func(b *mem.Backend, _ *RestoreConfig, dir, _ string) { _ = b.Delete(t.Context(), dir+commitKey) },
		"a step is not there":   func(_ *mem.Backend, cfg *RestoreConfig, _, _ string) { cfg.Step = 3 },
		"a step that is broken": func(b *mem.Backend, cfg *RestoreConfig, dir, _ string) { cfg.Step = 2; b.Put(dir+commitKey, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			push(t, b, 1, model("1"))
			c := push(t, b, 2, model("2"))
			cfg := RestoreConfig{Store: newStore(b), Step: Newest}
			dir := stepDir(2, 0) + "/"
			prepare(b, &cfg, dir, dir+c.Data+"/")
			before := objectsIn(b)
			cfg.Dir = filepath.Join(t.TempDir(), "rehearsed")
			got, gotErr := RehearseRestore(t.Context(), cfg)
			storeIs(t, b, before)
			if there, err := filepath.Glob(cfg.Dir); err != nil || len(there) > 0 {
				t.Errorf("the directory was made: %v, %v", there, err)
			}
			want, wantErr := Restore(t.Context(), cfg)
			if backends.KindOf(gotErr) != backends.KindOf(wantErr) || (gotErr == nil) != (wantErr == nil) {
				t.Fatalf("got the error %v, want %v", gotErr, wantErr)
			}
			got.Restored, want.Restored = want.Restored, want.Restored.UTC()
			got.Restored = want.Restored
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestRehearsePushCountsWhatPushSends(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	write(t, dir, map[string]string{"a": "a", "b/c": "bc", "d": "d"})
	cfg := PushConfig{Store: newStore(b), Path: dir}
	for _, change := range []func(){
		func() {},
		func() {},
		func() { write(t, dir, map[string]string{"a": "A!", "b/c": "BC"}) },
		func() { cfg.Path = filepath.Join(dir, "b/c") },
	} {
		change()
		before := objectsIn(b)
		got, err := RehearsePush(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		storeIs(t, b, before)
		want, err := Push(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	cfg.Path = filepath.Join(dir, "missing")
	if _, err := RehearsePush(t.Context(), cfg); backends.KindOf(err) != backends.NotExist {
		t.Errorf("what is not there: %v, want not-exist", err)
	}
}

func TestRehearsePushCheckpointDecidesAsPushCheckpointDoes(t *testing.T) {
	b, dir := mem.New(), filepath.Join(t.TempDir(), "checkpoint-7")
	write(t, dir, model("7"))
	cfg := PushCheckpointConfig{Store: newStore(b), Path: dir, Step: -1}
	rehearse := func(what, at string, there bool) {
		t.Helper()
		before := objectsIn(b)
		got, gotAt, gotThere, err := RehearsePushCheckpoint(t.Context(), cfg)
		storeIs(t, b, before)
		if err != nil || got.Step != 7 || len(got.Files) != 3 || gotAt != at || gotThere != there {
			t.Errorf("%s: got step %d of %d files in %s, there already %v, %v; want step 7 of 3 in %s, %v",
				what, got.Step, len(got.Files), gotAt, gotThere, err, at, there)
		}
	}
	rehearse("first", stepDir(7, 0), false)
	c, err := PushCheckpoint(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	rehearse("again", stepDir(7, 0), true)
	commit := stepDir(7, 0) + "/" + commitKey
	replace(b, commit, `"evidence"`, `"provisional": true, "evidence"`)
	rehearse("a provisional one", stepDir(7, 0), true)

	write(t, dir, map[string]string{"model.pt": "other"})
	before := objectsIn(b)
	if _, _, _, err := RehearsePushCheckpoint(t.Context(), cfg); backends.KindOf(err) != backends.Exist {
		t.Errorf("with other content: %v, want exist", err)
	}
	storeIs(t, b, before)
	cfg.Conflict = ConflictOverwrite
	rehearse("overwriting", stepDir(7, 0), false)
	cfg.Conflict = ConflictSuffix
	rehearse("beside it", stepDir(7, 1), false)
	if !slices.ContainsFunc(c.Files, func(f File) bool { return f.Digest != "" }) {
		t.Error("the pushed files have no digests")
	}
}
