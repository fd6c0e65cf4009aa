package plan

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// expanded returns a destination after Expand in an environment, on node 2 of 8, on the evening of
// a leap day in New York.
func expanded(t *testing.T, destination, env string, node Shard) (string, error) {
	t.Helper()
	p := &StagePlan{Metadata: Metadata{"imagenet"}, Spec: Spec{Outputs: []Output{{Path: "/out", Destination: destination}}}}
	now := time.Date(2028, 2, 29, 22, 0, 0, 0, time.FixedZone("EST", -5*3600))
	out, err := p.Expand(p.Vars(node, now, environment(env)))
	if p.Spec.Outputs[0].Destination != destination {
		t.Error("Expand changed the plan it was called on")
	}
	if err != nil {
		return "", err
	}
	return out.Spec.Outputs[0].Destination, nil
}

func TestExpand(t *testing.T) {
	for _, tt := range []struct{ text, env, want string }{
		{"s3://b/runs/", "", "s3://b/runs/"},
		{"s3://b/{job}/{attempt}/{index}of{count}/{date}", "", "s3://b/imagenet/0/2of8/2028-03-01"},
		{"s3://b/{job}/{attempt}/{date}", "STAGER_JOB=j1 STAGER_ATTEMPT=3 STAGER_DATE=today SLURM_RESTART_COUNT=9", "s3://b/j1/3/today"},
		{"{namespace}/{pod}/{role}/{user}", "STAGER_NAMESPACE=ml HOSTNAME=p-0 PAI_CURRENT_TASK_ROLE_NAME=worker USER=ann", "ml/p-0/worker/ann"},
		{"{index}", "STAGER_INDEX=5", "2"}, // Resolve has already read STAGER_INDEX
	} {
		got, err := expanded(t, tt.text, tt.env, Shard{2, 8})
		if err != nil || got != tt.want {
			t.Errorf("%q with %q: got %q, %v; want %q", tt.text, tt.env, got, err, tt.want)
		}
	}
}

func TestExpandNamesTheVariableToSet(t *testing.T) {
	for text, variable := range map[string]string{
		"{namespace}": "STAGER_NAMESPACE", "{pod}": "STAGER_POD", "{role}": "STAGER_ROLE", "{user}": "STAGER_USER", "{index}": "STAGER_INDEX", "{count}": "STAGER_COUNT",
	} {
		got, err := expanded(t, text, "", Shard{})
		var wrong *EnvError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "spec.outputs[0].destination: "+text) || !strings.Contains(err.Error(), variable) {
			t.Errorf("%s: got %q, %v; want an EnvError with %s", text, got, err, variable)
		}
	}
}

func TestExpandedDirsStayApart(t *testing.T) {
	p := &StagePlan{Spec: Spec{Inputs: []Input{{Path: "/d/{job}"}, {Path: "/d/{role}"}}}}
	if _, err := p.Expand(Vars{"job": "a", "role": "b"}); err != nil {
		t.Error(err)
	}
	if _, err := p.Expand(Vars{"job": "a", "role": "a"}); err == nil || !strings.Contains(err.Error(), "contain each other") {
		t.Errorf("two inputs in one directory: got %v", err)
	}
}

func FuzzSegment(f *testing.F) {
	for _, s := range []string{"imagenet", "..", ".", ".hidden", "a/b", "a-b", "ä", "\x00", "a b?c=d#e%2f", strings.Repeat("x", 300)} {
		f.Add(s, s+"-")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		got := segment(a)
		if got == "" || strings.HasPrefix(got, ".") || len(got) > segmentMax+9 || strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
			t.Errorf("segment(%q) = %q is not safe", a, got)
		}
		if a != b && got == segment(b) {
			t.Errorf("%q and %q both become %q", a, b, got)
		}
	})
}
