package cluster

import (
	"slices"
	"testing"
)

// row is one way in which a job can go, and what must be in the store afterwards.
type row struct {
	name        string
	objects     []string // the dataset in the bucket
	size        int      // of each, in bytes
	annotations []string // of the pod template, without stager.dev/; $BUCKET is the row's own
	job, pod    string   // fields of the Job and of the pod
	container   string   // and of the main container
	namespace   string   // "": default
	inject      []string // flags of stager inject
	main        string   // what the main container does, as root in a shell

	do func(*testing.T, *job) // what happens to it while it runs

	ends   string // Complete or Failed; "": nobody waits for its end
	reason string // the Job's; "": any
	failed int    // pods
	model  string // what the newest checkpoint holds; "": nothing is looked for
	also   func(*testing.T, *job)
}

const (
	dataset = "in.train: $BUCKET/data/ -> /data/train ? mode=prefetch"
	// The deadline is above the 10 s after which a checkpoint that nobody renamed before
	// stager's eyes counts as complete.
	checkpoint = "out.ckpt: /out -> $BUCKET/ckpt/ ? commit=checkpoint&deadline=20s"
	// atTheEnd is saved by a drain or after the main container, never before.
	atTheEnd = checkpoint + "&when=exit"
	results  = "out.res: /res -> $BUCKET/out/{index}/ ? commit=none&deadline=20s"

	indexed = "completions: 2\nparallelism: 2\ncompletionMode: Indexed\n"
)

// save is a trainer that saves a checkpoint in one step: of this number, with these
// weights.
const save = `save() { mkdir /out/step-$1.tmp && echo "weights ${2:-$1}" >/out/step-$1.tmp/model && mv /out/step-$1.tmp /out/step-$1; }
`

// resume is a trainer that begins with the newest checkpoint of a destination, if there
// is any.
const resume = `resume() { stager restore -q --optional $BUCKET/$1 /tmp/before || exit 3; }
`

// TestLifecycle runs each row on the node, with the release image, against an S3
// server that pods reach over their network.
func TestLifecycle(t *testing.T) {
	c := asked(t, oneNode)
	s3 := startNodeAndStore(t, c)
	t.Run("rows", func(t *testing.T) { // which ends when all of them have
		for _, r := range slices.Concat(endings, resuming, feeding, severalNodes, users, []row{atWork}) {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				j := newJob(t, c.in(r.namespace), s3, r.name, r.size, r.objects...)
				j.submit(t, r)
				if r.do != nil {
					r.do(t, j)
				}
				r.check(t, j)
			})
		}
		runExamples(t, c, s3)
		runOpenPAI(t, c, s3)
		t.Run("restarted-jobset", func(t *testing.T) {
			t.Parallel()
			restartedJobSet(t, c, s3)
		})
		t.Run("start", func(t *testing.T) {
			t.Parallel()
			followsStartPage(t, c, s3)
		})
		t.Run("plugin", func(t *testing.T) {
			t.Parallel()
			asksByPlugin(t, c, s3)
		})
		t.Run("webhook", func(t *testing.T) {
			t.Parallel()
			newcomer(t, c, s3)
		})
	})
	t.Run("chart", func(t *testing.T) { installsChart(t, c, s3) }) // without another webhook beside it
}

// check waits for the job's end and compares.
func (r row) check(t *testing.T, j *job) {
	t.Helper()
	var status jobStatus
	if r.ends != "" {
		status = j.wait(t)
	}
	condition, reason := status.end()
	if condition != r.ends || r.reason != "" && reason != r.reason {
		t.Errorf("the Job ended %s, %s, want %s, %s", condition, reason, r.ends, r.reason)
	}
	if r.failed != 0 && status.Failed != r.failed {
		t.Errorf("%d pods failed, want %d", status.Failed, r.failed)
	}
	if r.model != "" {
		if got, err := j.restored(t); err != nil || got != r.model {
			t.Errorf("the newest checkpoint holds %.200q, %v, want %q", got, err, r.model)
		}
	}
	if r.also != nil {
		r.also(t, j)
	}
}
