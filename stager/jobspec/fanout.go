package jobspec

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// FanoutOptions configure [Fanout].
type FanoutOptions struct {
	Name, Namespace string // of the Job; Namespace may be empty
	Source          string
	Destination     string
	Workers         int      // number of pods; each copies one partition
	Flags           []string // flags of stager copy, such as --include=*.tar

	Image, ImagePullPolicy string            // as in Options
	Env                    map[string]string // as in Options
	Secret                 string            // credentials of both stores, or of the source
	DestinationSecret      string            // credentials of the destination, if they differ
	SecretKeys             []string          // as plan.Credentials.Keys, of Secret
	DestinationSecretKeys  []string          // of DestinationSecret
	Claims                 map[string]string // mount paths of PersistentVolumeClaims, by name
	User                   int64             // user ID of the pods
}

// copySize is the size of a copying container. It has buffers, TLS and the record.
var copySize = size{500, 4000, 128 * mebi, 256 * mebi, 0}

// copyTries is how often the pod of one partition may fail.
const copyTries = 4

const srcSecrets, dstSecrets = "/etc/stager/src", "/etc/stager/dst"

// Fanout returns two Jobs as YAML. The first copies with one pod per worker, each with its own
// partition of the source. The second is suspended; once resumed, it compares both sides, and its
// exit status is the result. The Job controller is the only coordinator: it restarts a pod that
// ends, and the pod continues its partition.
func Fanout(o FanoutOptions) ([]byte, error) {
	switch {
	case o.Workers < 1 || o.Workers > plan.Stripes:
		return nil, fmt.Errorf("%d workers are not between 1 and %d", o.Workers, plan.Stripes)
	case o.User < 1:
		return nil, fmt.Errorf("the pods cannot run as user %d: they need no root, so name another", o.User)
	}
	for _, s := range []struct {
		secret string
		keys   []string
	}{{o.Secret, o.SecretKeys}, {o.DestinationSecret, o.DestinationSecretKeys}} {
		if _, err := plan.ParseSecretKeys(s.keys); err != nil {
			return nil, fmt.Errorf("keys of a Secret: %w", err)
		}
		if s.secret == "" && len(s.keys) > 0 {
			return nil, errors.New("keys of a Secret: there is no Secret; name it too")
		}
	}
	for claim, path := range o.Claims {
		if !strings.HasPrefix(path, "/") || within(srcSecrets, path) {
			return nil, fmt.Errorf("the claim %s cannot be mounted at %q: name a directory of its own, such as /mnt/data", claim, path)
		}
	}
	shard := fmt.Sprintf("--shard=$(JOB_COMPLETION_INDEX)/%d", o.Workers)
	job := o.job(o.Name, shard)
	job = append(yamledit.Map{
		{Key: "completionMode", Value: "Indexed"},
		{Key: "completions", Value: int64(o.Workers)},
		{Key: "parallelism", Value: int64(o.Workers)},
		{Key: "backoffLimitPerIndex", Value: int64(copyTries)},
	}, job...)
	check := o.Name + "-verify"
	verify := append(yamledit.Map{
		{Key: "suspend", Value: true},
		{Key: "backoffLimit", Value: int64(copyTries)},
	}, o.job(check, "--verify")...)
	in := ""
	if o.Namespace != "" {
		in = " -n " + o.Namespace
	}
	return fmt.Appendf(nil, `# Copies %s
# to %s by %d pods, a part each. Then the second Job compares both sides:
#
#   kubectl%[4]s apply -f FILE
#   kubectl%[4]s wait --for=condition=Complete --timeout=-1s job/%[5]s
#   kubectl%[4]s patch job/%[6]s --type=merge -p '{"spec":{"suspend":false}}'
#   kubectl%[4]s wait --for=condition=Complete --timeout=-1s job/%[6]s
#
# When that is complete, everything is copied and verified; its log lists what was compared. A pod
# that was killed is restarted and resumes. Kubernetes 1.29 and later.
%s---
%s`, printable(o.Source), printable(o.Destination), o.Workers, in, o.Name, check, o.document(o.Name, job), o.document(check, verify)), nil
}

// printable escapes a URL so that it stays within its comment.
func printable(s string) string { return strings.Trim(fmt.Sprintf("%q", s), `"`) }

func (o FanoutOptions) document(name string, spec yamledit.Map) string {
	meta := yamledit.Map{{Key: "name", Value: name}}
	if o.Namespace != "" {
		meta = append(meta, yamledit.Entry{Key: "namespace", Value: o.Namespace})
	}
	return yamledit.Marshal(yamledit.Map{
		{Key: "apiVersion", Value: "batch/v1"}, {Key: "kind", Value: "Job"}, {Key: "metadata", Value: meta}, {Key: "spec", Value: spec},
	})
}

// job returns the common part of both Jobs. flag selects the phase of the work.
func (o FanoutOptions) job(name, flag string) yamledit.Map {
	args := []any{"copy", flag}
	for _, f := range o.Flags {
		args = append(args, literal(f))
	}
	room := yamledit.Map{{Key: "sizeLimit", Value: "64Mi"}}
	if strings.HasPrefix(o.Source, "git+") {
		room = yamledit.Map{} // it holds the commit
	}
	mounts, volumes := []any{mountAt(tmpVolume, "/tmp")}, []any{yamledit.Map{{Key: "name", Value: tmpVolume}, {Key: "emptyDir", Value: room}}}
	add := func(volume, path string, readOnly bool, source yamledit.Entry) {
		mount := yamledit.Map{{Key: "name", Value: volume}, {Key: "mountPath", Value: path}}
		if readOnly {
			mount = append(mount, yamledit.Entry{Key: "readOnly", Value: true})
		}
		mounts = append(mounts, mount)
		volumes = append(volumes, yamledit.Map{{Key: "name", Value: volume}, source})
	}
	for _, s := range []struct {
		volume, flag, path, secret string
		keys                       []string
	}{
		{"stager-src", "--secrets=", srcSecrets, o.Secret, o.SecretKeys},
		{"stager-dst", "--dst-secrets=", dstSecrets, o.DestinationSecret, o.DestinationSecretKeys},
	} {
		if s.secret != "" {
			args = append(args, s.flag+s.path)
			add(s.volume, s.path, true, secretVolume(s.secret, s.keys))
		}
	}
	for i, claim := range slices.Sorted(maps.Keys(o.Claims)) {
		add(fmt.Sprintf("claim-%d", i), o.Claims[claim], false, yamledit.Entry{Key: "persistentVolumeClaim", Value: yamledit.Map{{Key: "claimName", Value: claim}}})
	}
	args = append(args, literal(o.Source), literal(o.Destination))
	// The fields that every stager container has in an injected pod.
	c := (&pod{req: new(request), opts: Options{Image: o.Image, ImagePullPolicy: o.ImagePullPolicy}}).container("copy")
	c = append(c, yamledit.Entry{Key: "args", Value: args})
	if len(o.Env) > 0 {
		var env []any
		for _, name := range slices.Sorted(maps.Keys(o.Env)) {
			env = append(env, yamledit.Map{{Key: "name", Value: name}, {Key: "value", Value: literal(o.Env[name])}})
		}
		c = append(c, yamledit.Entry{Key: "env", Value: env})
	}
	c = append(c,
		yamledit.Entry{Key: "resources", Value: copySize.entry()},
		yamledit.Entry{Key: "securityContext", Value: user{uid: o.User, gid: o.User}.context()},
		yamledit.Entry{Key: "volumeMounts", Value: mounts},
	)
	return yamledit.Map{
		{Key: "podReplacementPolicy", Value: "Failed"},
		{Key: "podFailurePolicy", Value: failurePolicy("copy")},
		{Key: "template", Value: yamledit.Map{
			{Key: "metadata", Value: yamledit.Map{{Key: "labels", Value: yamledit.Map{{Key: "app.kubernetes.io/name", Value: name}}}}},
			{Key: "spec", Value: yamledit.Map{
				{Key: "restartPolicy", Value: "Never"},
				{Key: "securityContext", Value: yamledit.Map{{Key: "fsGroup", Value: o.User}}},
				{Key: "containers", Value: []any{c}},
				{Key: "volumes", Value: volumes},
			}},
		}},
	}
}

// literal keeps Kubernetes from expanding $(NAME) in a value.
func literal(s string) string { return strings.ReplaceAll(s, "$(", "$$(") }
