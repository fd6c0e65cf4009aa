package jobspec

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// awkward are names with characters that volume names cannot contain, names of maximum length and
// longer, and names that stager uses itself.
var awkward = []string{
	"a-b", "a.b", "A.b", "a/b", "ä", "run", "tmp", "bin", "secret-s3", "s3",
	"a-b-" + strings.TrimPrefix(hashed("x", "secret/a.b"), "x-"), // the hashed name of a.b
	strings.Repeat("x", 57), strings.Repeat("x", 63), strings.Repeat("x", 62) + "y", strings.Repeat("x", 64),
	strings.Repeat("x.", 126) + "x", strings.Repeat("x.", 126) + "y", // 253
}

// meetings are plans with two colliding names. The names are quoted because some are not valid
// words.
var meetings = []struct{ name, plan string }{
	{"two Secrets of prefetches", `inputs:
  - {name: one, source: "s3://b/1/", path: /data/one, credentials: {secret: %[1]q}}
  - {name: two, source: "s3://b/2/", path: /data/two, credentials: {secret: %[2]q}}`},
	{"a Secret for each way", `inputs:
  - {name: one, source: "s3://b/1/", path: /data, mode: window, window: {size: 1Gi}, credentials: {secret: %[1]q}}
  outputs: [{name: two, path: /out, destination: "s3://b/2/", credentials: {secret: %[2]q}}]`},
	{"two inputs", `inputs:
  - {name: %[1]q, source: "s3://b/1/", path: /data/one}
  - {name: %[2]q, source: "s3://b/2/", path: /data/two, mode: window, window: {size: 1Gi}}`},
	{"an input and an output", `inputs: [{name: %[1]q, source: "s3://b/1/", path: /data}]
  outputs: [{name: %[2]q, path: /out, destination: "s3://b/2/"}]`},
	{"a volume and an input", `volumes: [{name: %[1]q, size: 1Gi}]
  inputs:
  - {name: other, source: "s3://b/1/", path: /data/one, volume: %[1]q}
  - {name: %[2]q, source: "s3://b/2/", path: /data/two}`},
	{"two volumes", `volumes: [{name: %[1]q, size: 1Gi}, {name: %[2]q, size: 1Gi}]
  inputs:
  - {name: one, source: "s3://b/1/", path: /data/one, volume: %[1]q}
  - {name: two, source: "s3://b/2/", path: /data/two, volume: %[2]q}`},
	{"an input and a Secret", `inputs: [{name: %[1]q, source: "s3://b/1/", path: /data, credentials: {secret: %[2]q}}]`},
	{"an output and a Secret", `outputs: [{name: %[1]q, path: /out, destination: "s3://b/2/", credentials: {secret: %[2]q}}]`},
	{"one volume, apart", `volumes: [{name: data, size: 1Gi}]
  inputs: [{name: %[1]q, source: "s3://b/1/", path: /data, volume: data}]
  outputs: [{name: %[2]q, path: /out, destination: "s3://b/2/", volume: data}]`},
}

// Volume names collided: the Secrets a.b and a-b shared a volume, so that one store received the
// other's credentials. An input secret-s3 had the volume of the Secret s3, which was then mounted
// in the job's container. Any two names must now be refused or have separate volumes.
func TestNamesNeverShareAVolume(t *testing.T) {
	for _, m := range meetings {
		t.Run(m.name, func(t *testing.T) {
			injected := 0
			for i, one := range awkward {
				for j, two := range awkward {
					text := "apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: p}\nspec:\n  " + fmt.Sprintf(m.plan, one, two)
					opts := Options{Plan: []byte(text)}
					file := []byte(job("", "", "        command: [train]"))
					result, err := Inject(file, opts)
					if err != nil {
						if !strings.Contains(err.Error(), one) && !strings.Contains(err.Error(), two) {
							t.Errorf("%q and %q are refused without their names: %v", one, two, err)
						}
						continue
					}
					injected++
					var object batchv1.Job
					if err := yaml.UnmarshalStrict(result.Output, &object); err != nil {
						t.Fatal(err)
					}
					if err := apart(object.Spec.Template.Spec); err != nil {
						t.Errorf("%q and %q: %v", one, two, err)
					}
					if j == i+1 { // only for some, because all would take ten times as long
						holds(t, file, opts)
					}
				}
			}
			if injected < len(awkward) {
				t.Errorf("got %d pairs injected, want %d at least: else this test tests nothing", injected, len(awkward))
			}
		})
	}
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// apart returns what two things share in a pod: a volume name, a path on a volume, or a path in a
// container. It also returns a Secret that is mounted in the wrong container.
func apart(spec corev1.PodSpec) error {
	secrets := make(map[string]string) // by volume
	var names []string
	for _, v := range spec.Volumes {
		if slices.Contains(names, v.Name) {
			return fmt.Errorf("two volumes are %s", v.Name)
		}
		names = append(names, v.Name)
		if len(v.Name) > 63 || !dnsLabel.MatchString(v.Name) {
			return fmt.Errorf("the volume %q is not a DNS label", v.Name)
		}
		if v.Secret != nil {
			secrets[v.Name] = v.Secret.SecretName
		}
	}
	for i, c := range slices.Concat(spec.Containers, spec.InitContainers) {
		paths, places := make(map[string]bool), make(map[string]string)
		for _, m := range c.VolumeMounts {
			place := m.Name + "/" + m.SubPath
			switch secret, is := secrets[m.Name]; {
			case paths[m.MountPath]:
				return fmt.Errorf("container %s has two mounts at %s", c.Name, m.MountPath)
			case places[place] != "":
				return fmt.Errorf("container %s has the same at %s and %s", c.Name, places[place], m.MountPath)
			case !slices.Contains(names, m.Name):
				return fmt.Errorf("container %s mounts %s, which there is not", c.Name, m.Name)
			case is && i < len(spec.Containers):
				return fmt.Errorf("the job's container %s mounts the Secret %s", c.Name, secret)
			case is && path.Base(m.MountPath) != secret:
				return fmt.Errorf("container %s mounts the Secret %s at %s", c.Name, secret, m.MountPath)
			}
			paths[m.MountPath], places[place] = true, m.MountPath
		}
	}
	return nil
}

// Stager's own directories, mounts and variables are refused with an explanation. Otherwise the API
// server would refuse them, or nothing would.
func TestNamesOfStagerAreRejected(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		opts       Options
		want       string
	}{
		{"an input run", job(`stager.dev/in.run: "s3://b/ -> /data"`, "", ""), Options{}, "input run: its volume would be stager-run, and such names are reserved for stager"},
		{"an output tmp", job(`stager.dev/out.tmp: "/out -> s3://b/"`, "", ""), Options{}, "output tmp: its volume would be stager-tmp, and such names are reserved for stager"},
		{"an input like a Secret", job(`stager.dev/in.secret-s3: "s3://b/ -> /data"`, "", ""), Options{}, "rename the input, or give it a volume of the plan"},
		{"data at the socket", job(`stager.dev/in.train: "s3://b/ -> /run/stager/data"`, "", ""), Options{}, "input train: its path /run/stager/data overlaps with /run/stager, which is reserved for stager"},
		{"data around the Secrets", job(`stager.dev/out.o: "/run -> s3://b/"`, "", ""), Options{}, "output o: its path /run overlaps with /run/stager"},
		{"data at stager's scratch directory", job(`stager.dev/in.train: "s3://b/ -> /tmp"`, "", ""), Options{}, "input train: stager has a volume of its own at /tmp; choose a directory in it, or another path"},
		{
			"data on the job's scratch volume", job(`stager.dev/in.train: "s3://b/ -> /tmp/data"`, "      volumes: [{name: scratch, emptyDir: {}}]", "        volumeMounts: [{name: scratch, mountPath: /tmp}]"),
			Options{},
			"two volumes, scratch and stager-tmp, belong at /tmp in stager's container; mount the data elsewhere",
		},
		{"a variable of its own", job(train, "", ""), Options{Env: map[string]string{"STAGER_SOCKET": "/x"}}, "the variable STAGER_SOCKET is set by inject itself"},
		{"the plan as a variable", job(train, "", ""), Options{Env: map[string]string{"STAGER_PLAN_YAML": "x"}}, "the variable STAGER_PLAN_YAML is set by inject itself"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Inject([]byte(tt.file), tt.opts)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got the error %v, want one with %q", err, tt.want)
			}
		})
	}
}
