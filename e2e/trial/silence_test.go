package trial

import (
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// loss is a way in which work is not done, and where that is said: in the log, by the exit
// code, in the status and by a metric.
type loss struct {
	name    string
	plan    string       // the spec; DIR is the row's directory
	args    []string     // of "stager run"; of the command where there is no plan
	shell   string       // what the shell does before it starts stager
	setup   func(*quiet) // before the start
	work    func(*quiet) // while it runs
	status  string       // expression that GET /v1/status matches after work
	log     []string     // expressions
	code    int
	moves   []string // metrics
	term    bool     // it ends by SIGTERM, not by itself
	root    bool     // it takes root
	unready bool     // it ends before it is ready
}

// losses are the rows of the table; moreLosses are those that need a server, a disk or a user
// of their own, or a bad shard, and endLosses those about the end of a run.
var losses = []loss{
	{
		name: "the source is not there", args: []string{"prefetch", "URL/none/", "DIR/to"},
		log: []string{"none: no such file or directory"}, code: 66,
	},
	{
		name: "a name is no path", args: []string{"prefetch", "URL/src/", "DIR/to"},
		setup: func(q *quiet) { q.write("src/bad\xff", "x") },
		log:   []string{`"bad\\xff": the key is not a valid path: it is not UTF-8; exclude it`}, code: 78,
	},
	{
		name: "the destination is in the source", args: []string{"prefetch", "URL/src/", "DIR/src/to"},
		setup: func(q *quiet) { q.write("src/a", "x") },
		log:   []string{"copied into itself; use another one"}, code: 78,
	},
	{
		name: "a local file differs", args: []string{"prefetch", "URL/src/", "DIR/to"},
		setup: func(q *quiet) { q.write("src/a", "x"); q.write("to/a", "yy") },
		log:   []string{`1 file in the way: .*"a"; move it away, or replace it with --overwrite`}, code: 78,
	},
	{
		name: "more than allowed", args: []string{"prefetch", "URL/src/", "DIR/to", "--max-bytes", "1"},
		setup: func(q *quiet) { q.write("src/a", "xx") },
		log:   []string{"at most 1 bytes are allowed"}, code: 78,
	},
	{
		name: "the destination of a copy differs", args: []string{"copy", "URL/src/", "URL/to/"},
		setup: func(q *quiet) { q.write("src/a", "x"); q.write("to/a", "yy") },
		log:   []string{`1 object at the destination differs from the source, such as "a"; nothing was copied`}, code: 78,
	},
	{
		name: "a copy is not whole", args: []string{"copy", "--verify", "URL/src/", "URL/to/"},
		setup: func(q *quiet) { q.write("src/a", "x"); q.write("src/b", "x"); q.write("to/a", "y") },
		log:   []string{`"b" missing`, `"a" differs: its bytes`, "1 object is missing and 1 differs"}, code: 76,
	},
	{
		name: "no checkpoint", args: []string{"restore", "URL/none/", "DIR/to"},
		log: []string{"there is no committed checkpoint"}, code: 66,
	},
	{
		name: "no checkpoint, and none is needed", args: []string{"restore", "--optional", "URL/none/", "DIR/to"},
		log: []string{"nothing to restore"}, code: 0,
	},
	{
		name: "the newest checkpoint is damaged", args: []string{"restore", "URL/ckpt/", "DIR/to"},
		setup: func(q *quiet) { q.push(1, "aaaa"); q.push(2, "bbbb"); q.damage(2, "bxbb") },
		log:   []string{`level=WARN .*step-00000002`}, code: 0,
	},
	{
		name: "every checkpoint is damaged", args: []string{"restore", "URL/ckpt/", "DIR/to"},
		setup: func(q *quiet) { q.push(1, "aaaa"); q.damage(1, "axaa") },
		log:   []string{"step-00000001.*model"}, code: 76,
	},
	{
		name: "a dry run of prune", args: []string{"prune", "--dry-run", "--last", "1", "URL/ckpt/"},
		setup: func(q *quiet) { q.push(1, "aaaa"); q.push(2, "bbbb") },
		log:   []string{"an older step would be removed.* step=step-00000001", "would be removed.* steps=1"}, code: 0,
	},
	{
		name: "a step of a later version", args: []string{"prune", "--last", "1", "URL/ckpt/"},
		setup: func(q *quiet) {
			q.push(1, "aaaa")
			q.push(2, "bbbb")
			q.edit("ckpt/step-00000002/COMMIT.json", "stager.dev/v1alpha1", "stager.dev/v9")
		},
		log: []string{"later version of stager"}, code: 0,
	},
	{
		name: "a checkpoint differs from the committed one", args: []string{"push", "--commit", "DIR/step-1", "URL/ckpt/"},
		setup: func(q *quiet) { q.push(1, "aaaa"); q.write("step-1/model", "bbbb") },
		log:   []string{"commit step-00000001: the destination has this step with other content: remove it"}, code: 78,
	},
	{
		name: "a shard is refused three times", plan: window("", ""), setup: func(q *quiet) { q.shards(2) },
		work:   func(q *quiet) { q.refuse(3) },
		status: `"error":"[^"]*cannot be delivered: readers rejected it[^"]*torn`,
		log:    []string{"shard-0.tar .*cannot be delivered: readers rejected it .*torn"}, code: 76, term: true,
		moves: []string{"stager_window_delivered_total", "stager_window_redelivered_total", "stager_window_items", "stager_window_limit_bytes", "stager_window_bytes", "stager_window_peak_bytes"},
	},
	{
		name: "a shard changed after it was listed", plan: window("size: 192Ki, ", ""), setup: func(q *quiet) { q.shards(3) },
		work: func(q *quiet) {
			q.replace("src/shard-2.tar", strings.Repeat("y", 24<<10+1))
			q.take(1)
		},
		status: `"error":"[^"]*shard-2.tar[^"]*changed`,
		log:    []string{"shard-2.tar.*changed"}, code: 75, term: true, moves: []string{"stager_window_fetch_failures_total", "stager_window_acknowledged_total"},
	},
	{
		name: "a shard vanished after it was listed", plan: window("size: 192Ki, ", ""), setup: func(q *quiet) { q.shards(3) },
		work: func(q *quiet) {
			q.must(os.Remove(q.path("src/shard-2.tar")))
			q.take(1)
		},
		status: `"error":"[^"]*shard-2.tar`,
		log:    []string{"shard-2.tar"}, code: 75, term: true, moves: []string{"stager_window_fetch_failures_total", "stager_store_requests_total"},
	},
	{
		name: "optional input not found", plan: "  inputs:\n  - {name: train, source: \"URL/none/\", path: DIR/win, mode: prefetch, optional: true}\n",
		status: `"name":"train"`, log: []string{"optional"}, code: 0, term: true,
	},
	{
		name: "a reader waits for the others", plan: window("reuse: fit, ", ", epochs: 2"), setup: func(q *quiet) { q.shards(1) },
		work: func(q *quiet) {
			q.take(1)
			lease := q.lease("a")
			go q.try("POST", "/v1/inputs/train/lease?reader=b&wait=1m&end=all", "") //nolint:errcheck // it gets the end, or nothing
			q.await("a wait is counted", func() bool { q.scrape(); return q.moved["stager_window_wait_seconds_total"] })
			q.ack(lease)
		},
		status: `"waits":{"[a-z]+":[0-9.e-]*[1-9]`, code: 0, term: true,
		moves: []string{"stager_window_wait_seconds_total", "stager_window_reused_total", "stager_window_epoch", "stager_api_connections"},
	},
	{
		name: "the deadline of a drain passes", plan: output(", deadline: 1s, required: true", "{bandwidth: 64Ki}"),
		work: func(q *quiet) {
			q.write("out/step-1/model", strings.Repeat("m", 1<<20))
			q.commit("step-1", http.StatusAccepted)
			q.await("it is being sent", func() bool { q.scrape(); return q.moved["stager_checkpoint_uploading_bytes"] })
		},
		status: `"uploading":{"step":1`,
		log:    []string{"outputs are not saved: output ckpt: ", "step 1 .*is not safe"}, code: 75, term: true,
		moves: []string{"stager_checkpoint_uploading_bytes", "stager_checkpoint_lag_seconds", "stager_checkpoint_grace_seconds"},
	},
	{
		name: "the destination has the step with other content", plan: output(", conflict: fail, required: true", ""),
		setup: func(q *quiet) { q.push(1, "aaaa") },
		work: func(q *quiet) {
			q.write("out/step-1/model", "bbbb")
			q.call("POST", "/v1/outputs/ckpt/commit?wait=1m", `{"path":"step-1"}`)
			q.await("it is counted", func() bool { q.scrape(); return q.moved["stager_checkpoint_failures_total"] })
		},
		status: `"failed":\[{"name":"step-1","step":1,"reason":"[^"]*other content`,
		log:    []string{"other content"}, code: 75, term: true, moves: []string{"stager_checkpoint_failures_total"},
	},
	{
		name: "a checkpoint is removed before it is complete", plan: output("", ""),
		work: func(q *quiet) {
			q.write("out/step-1/model-00001-of-00002.bin", "half")
			q.await("it waits", func() bool {
				_, status := q.call("GET", "/v1/status", "")
				return strings.Contains(status, `"waiting":[{"name":"step-1"`)
			})
			q.must(os.RemoveAll(q.path("out/step-1")))
			q.await("it is counted", func() bool { q.scrape(); return q.moved["stager_checkpoint_missed_total"] })
		},
		status: `"missed":\[{"name":"step-1"`, log: []string{"was removed before it was complete.* checkpoint=step-1"},
		code: 0, term: true, moves: []string{"stager_checkpoint_missed_total"},
	},
	{
		name: "what is committed is not there", plan: output("", ""),
		work:   func(q *quiet) { q.commit("step-7", http.StatusUnprocessableEntity) },
		status: `"output":"ckpt"`, code: 0, term: true,
	},
	{
		name: "idle connections come in hundreds", plan: output(", required: true", ""), shell: "ulimit -n 128;", args: []string{"--listen", "127.0.0.1:0"},
		work: func(q *quiet) {
			q.flood(300)
			q.write("out/step-1/model", "aaaa")
			q.write("out/notes.txt", "plain")
			q.commit("step-1", http.StatusOK)
			q.await("a forecast", func() bool { q.scrape(); return q.moved["stager_checkpoint_forecast_seconds"] })
		},
		status: `"committed":{"step":1`,
		log:    []string{"too many connections to the API.* listener=socket", "too many connections to the API.* listener=port"}, code: 0, term: true,
		moves: []string{"stager_api_refused_total", "stager_checkpoint_committed_total", "stager_checkpoint_bytes_total", "stager_store_request_seconds", "stager_store_bytes_total", "stager_checkpoint_forecast_seconds"},
	},
	{
		name: "a name that cannot be saved", plan: "  outputs:\n  - {name: ckpt, path: DIR/out, destination: \"URL/ckpt/\", commit: none, quietPeriod: 10ms}\n",
		work: func(q *quiet) {
			q.write("out/notes.txt", "plain")
			q.write("out/bad\xff", "x")
			q.await("it is counted", func() bool { q.scrape(); return q.moved["stager_checkpoint_not_saved_files"] })
		},
		status: `"notSaved":\[`, log: []string{`bad\\+xff`}, code: 75, term: true, moves: []string{"stager_checkpoint_not_saved_files", "stager_checkpoint_mirrored_bytes_total"},
	},
	{
		name: "a name that cannot be pushed", args: []string{"push", "DIR/src", "URL/to/"},
		setup: func(q *quiet) { q.write("src/a", "x"); q.write("src/bad\xff", "x") },
		log:   []string{`bad\\+xff`}, code: 75,
	},
	{
		name: "plain files", plan: "  outputs:\n  - {name: ckpt, path: DIR/out, destination: \"URL/ckpt/\", commit: none, quietPeriod: 10ms}\n",
		work: func(q *quiet) {
			q.write("out/notes.txt", "plain")
			q.await("it is sent", func() bool { q.scrape(); return q.moved["stager_checkpoint_mirrored_bytes_total"] })
		},
		status: `"mirrored":{"files":1`, code: 0, term: true, moves: []string{"stager_checkpoint_mirrored_bytes_total"},
	},
}

// movedElsewhere are the metrics that no short row moves, with the test that does.
var movedElsewhere = map[string]string{
	"stager_window_listing_objects":              "TestListingObjectsAreCounted",
	"stager_store_hedges_total":                  "TestHedgeDoesNotWaitForLateResponse",
	"stager_checkpoint_provisional_total":        "TestProvisionalCheckpointIsNotReportedSafe",
	"stager_checkpoint_missing_nodes":            "TestMissingNodesAndAbandonedCheckpointsAreCounted",
	"stager_checkpoint_abandoned_total":          "TestMissingNodesAndAbandonedCheckpointsAreCounted",
	"stager_webhook_requests_total":              "TestRequests",
	"stager_webhook_seconds":                     "TestRequests",
	"stager_webhook_certificate_expires_seconds": "TestSyncFailuresAreCountedAndLoggedOnce",
	"stager_webhook_sync_failures_total":         "TestSyncFailuresAreCountedAndLoggedOnce",
}

func window(more, order string) string {
	size := ""
	if !strings.Contains(more, "size:") {
		size = "size: 1Mi, "
	}
	return "  inputs:\n  - {name: train, source: \"URL/src/\", path: DIR/win, mode: window, window: {" + more + size +
		"parallel: 1, minReady: {files: 1}}, order: {by: name" + order + "}}\n"
}

func output(more, limits string) string {
	if limits != "" {
		limits = "  limits: " + limits + "\n"
	}
	return limits + "  outputs:\n  - {name: ckpt, path: DIR/out, destination: \"URL/ckpt/\", quietPeriod: 1h" + more + "}\n"
}

// TestLossesAreReported walks the table: each row's loss is in the log, in the exit code,
// in the status and in a metric.
func TestLossesAreReported(t *testing.T) {
	binary := build(t)
	var mu sync.Mutex
	moved := make(map[string]bool)
	var said strings.Builder
	t.Run("rows", func(t *testing.T) {
		for _, l := range slices.Concat(losses, moreLosses, endLosses, storeLosses) {
			t.Run(l.name, func(t *testing.T) {
				t.Parallel()
				q := newQuiet(t, binary)
				q.walk(l)
				mu.Lock()
				defer mu.Unlock()
				maps.Copy(moved, q.moved)
				said.WriteString(q.said())
			})
		}
	})
	if !t.Failed() {
		everyMetricMoves(t, moved)
		everyErrorIsSaid(t, said.String())
	}
}

// errorsElsewhere are the messages at error that no row logs, with the test that sees what they
// report.
var errorsElsewhere = map[string]string{
	"the newest checkpoint would be lost: use a longer grace period": "TestForecastReportsLoss",
	"a checkpoint is abandoned":                                      "TestAbandonedStepIsErrorOnlyWhileNothingNewerIsSaved",
	"a checkpoint of all nodes is abandoned":                         "TestNodesDoNotWaitForOneThatHasLeft",
	"another job saves to the destination":                           "TestSecondJobAtDestinationIsRefused",
	"API server failed, exiting":                                     "TestServeFailureIsReported",
	"cannot refresh the …; trying again":                             "TestSyncFailuresAreCountedAndLoggedOnce",
}

// everyErrorIsSaid looks whether each message of the reference that reports a loss, at error, was
// logged by a row, or has a test that sees it.
func everyErrorIsSaid(t *testing.T, said string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/log-messages.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	named := regexp.MustCompile(`(?m)^\| (.+) \| error \|`).FindAllStringSubmatch(string(page), -1)
	for _, m := range named {
		words := m[1]
		elsewhere := errorsElsewhere[words]
		switch {
		case elsewhere == "" && !strings.Contains(said, words):
			t.Errorf("no row logs %q, which is at error, want one that does", words)
		case elsewhere != "" && !slices.Contains(tests, elsewhere):
			t.Errorf("%q is said to be seen by %s, which does not exist", words, elsewhere)
		}
	}
	if len(named) < 5 {
		t.Errorf("got %d messages at error in the reference, want 5 and more", len(named))
	}
}

// everyMetricMoves looks whether each metric of the reference was seen to move, or has a test that
// sees it.
func everyMetricMoves(t *testing.T, moved map[string]bool) {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	named := regexp.MustCompile("(?m)^\\| `(stager_[a-z_]+)`").FindAllStringSubmatch(string(page), -1)
	for _, m := range named {
		name := m[1]
		elsewhere := movedElsewhere[name]
		switch {
		case moved[name] && elsewhere != "":
			t.Errorf("%s moves in a row, want it out of movedElsewhere", name)
		case !moved[name] && elsewhere == "":
			t.Errorf("%s never moved, want a row that moves it", name)
		case !moved[name] && !slices.Contains(tests, elsewhere):
			t.Errorf("%s is said to be moved by %s, which does not exist", name, elsewhere)
		}
	}
	if len(named) < 30 {
		t.Errorf("got %d metrics of the reference, want 30 and more", len(named))
	}
}

// testNames are those of all tests of the product.
func testNames(t *testing.T) (names []string) {
	t.Helper()
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := fs.WalkDir(os.DirFS("../.."), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join("../..", path))
		for _, m := range name.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
