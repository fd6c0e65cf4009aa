package jobspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// job returns a Job with annotations and additional fields in its pod spec and container.
func job(annotations, spec, container string) string {
	return `apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    metadata:
      annotations: {` + annotations + `}
    spec:
      restartPolicy: Never
` + spec + `
      containers:
      - name: main
        image: x
` + container + "\n"
}

const saves = `stager.dev/out.o: "/out -> s3://b/"`

const train = `stager.dev/in.train: "s3://b/train/ -> /data/train"`

// Each fault is reported in one sentence with the position and the remedy.
func TestInjectErrors(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		opts       Options
		want       string
	}{
		{"two plans for one path", job(train+`, stager.dev/in.val: "s3://b/val/ -> /data/train"`, "", ""), Options{}, "line 7, column 93: Job/train: stager.dev/in.val: path: /data/train and /data/train (stager.dev/in.train: path) contain each other; use separate directories"},
		{
			"more pods than parts", strings.Replace(job(train, "", ""), "spec:\n", "spec:\n  completions: 841\n  completionMode: Indexed\n", 1),
			Options{},
			"line 1, column 1: Job/train: 841 pods share the data, and it can be divided among 840 at most; write shard: {by: none} into the plan",
		},
		{"two plans", job(`stager.dev/plan: "configmap:a", stager.dev/plan-yaml: b`, "", ""), Options{}, "both set a plan; keep one"},
		{
			"a volume over a user's mount",
			job(`stager.dev/in.train: "s3://b/ -> /data ? medium=disk"`, "", "        volumeMounts: [{name: mine, mountPath: /data/sub}]"),
			Options{},
			"line 14, column 24: Job/train: the plan's volume stager-train at /data would hide mine, which container main has at /data/sub",
		},
		{
			"a directory that stager cannot see",
			job(`stager.dev/in.train: "file:///mnt/shared/train/ -> /data"`, "", "        volumeMounts: [{name: mine, mountPath: /mnt/share}]"),
			Options{},
			"line 12, column 9: Job/train: train: /mnt/shared/train is not on a volume that container main mounts; mount its volume there",
		},
		{"no arrow", job(`stager.dev/in.train: "s3://b/train/ /data"`, "", ""), Options{}, `line 7, column 42: Job/train: train: "s3://b/train/ /data" has no " -> "; write URL -> PATH`},
		{"an unknown key", job(`stager.dev/in.train: "s3://b/ -> /data ? mode=window&sise=8Gi"`, "", ""), Options{}, `line 7, column 74: Job/train: train: "sise" is not known here; known are anyOrder, block`},
		{"a key of the other side", job(`stager.dev/out.o: "/out -> s3://b/ ? epochs=3"`, "", ""), Options{}, `"epochs" is not known here; known are commit`},
		{"a key without value", job(`stager.dev/in.train: "s3://b/ -> /data ? mode"`, "", ""), Options{}, "mode has no value; write mode=VALUE"},
		{"a size that is none", job(`stager.dev/in.train: "s3://b/ -> /data ? size=big"`, "", ""), Options{}, `"big" is not a number of bytes`},
		{"an unknown annotation", job(`stager.dev/input.train: x`, "", ""), Options{}, "the annotation stager.dev/input.train is not known; known are"},
		{"an unknown gate", job(train+`, stager.dev/gate: door`, "", ""), Options{}, `unknown value "door"; use init or none or startup`},
		{"a bad plan", job(`stager.dev/plan-yaml: "kind: StagePlan"`, "", ""), Options{}, "the plan is invalid:\n"},
		{"a plan that is not here", job(`stager.dev/plan: "configmap:a"`, "", ""), Options{}, "the ConfigMap a with its key plan.yaml was not found; add its file, or set the plan with --plan"},
		{"a plan from nowhere", job(`stager.dev/plan: "a"`, "", ""), Options{}, `"a" names no plan; write configmap:NAME`},
		{"a container without a name", strings.Replace(job(train, "", ""), "- name: main\n        image", "- image", 1), Options{Path: "spec.template"}, "this container has no name; write one, such as name: main"},
		{"no such container", job(train+`, stager.dev/containers: trainer`, "", ""), Options{}, `there is no container "trainer", which stager.dev/containers names; there are main`},
		{"no command to run in", job(train+`, stager.dev/finalize: run`, "", ""), Options{}, "container main has no command, and the command of its image is unknown here"},
		{"an unknown end", job(train+`, stager.dev/finalize: later`, "", ""), Options{}, `unknown value "later"; use auto or run or sidecar or wrap`},
		{"no command to wrap", job(train+`, stager.dev/finalize: wrap`, "", ""), Options{}, "container main has no command, and the command of its image is unknown here"},
		{
			"a RAM disk over the memory limit",
			job(`stager.dev/in.train: "s3://b/ -> /data ? medium=memory&size=20Gi"`, "", "        resources: {limits: {memory: 16Gi}}"),
			Options{},
			"the RAM disk of 20Gi is charged to container main, whose memory limit is 16Gi: raise it to 36Gi, make the disk smaller, or let --adjust-memory add the disk to it",
		},
		{"a RAM disk without size", job(`stager.dev/in.train: "s3://b/ -> /data ? medium=memory"`, "", ""), Options{}, "a volume in memory requires a size"},
		{
			"the user's RAM disk without size",
			job(`stager.dev/in.train: "s3://b/ -> /ram/data"`, "      volumes: [{name: ram, emptyDir: {medium: Memory}}]", "        volumeMounts: [{name: ram, mountPath: /ram}]"),
			Options{},
			"the RAM disk ram has no sizeLimit",
		},
		{
			"volumes over a limit of the node's disk",
			job(`stager.dev/in.train: "s3://b/ -> /data ? size=20Gi"`, "", "        resources: {limits: {ephemeral-storage: 1Gi}}"),
			Options{},
			"the containers may use 1Gi of the node's disk in total, and the volumes of the plan (20Gi) count towards it",
		},
		{"a limit that is none", job(`stager.dev/in.train: "s3://b/ -> /data"`, "", "        resources: {limits: {memory: lots}}"), Options{}, `"lots" is not a quantity`},
		{"an old cluster", job(`stager.dev/out.o: "/out -> s3://b/"`, "", ""), Options{Kubernetes: "v1.28.3"}, "a sidecar needs Kubernetes 1.29, and the cluster has v1.28.3; use stager.dev/finalize: run, which needs none"},
		{"a cluster of no version", job(`stager.dev/out.o: "/out -> s3://b/"`, "", ""), Options{Kubernetes: "new"}, `"new" is not a version of Kubernetes`},
		{"Windows", job(train, "      os: {name: windows}", ""), Options{}, "stager does not run on Windows nodes"},
		{"somebody's own stager", job(train, "      initContainers: [{name: stager, image: x}]", ""), Options{}, "the container stager already exists and was not injected"},
		{"a volume of ours without record", job(train, "      volumes: [{name: stager-tmp, emptyDir: {}}]", ""), Options{}, "line 10, column 17: Job/train: spec.volumes.stager-tmp already exists and was not injected"},
		{"a volume that is not there", job(`stager.dev/in.train: "s3://b/ -> /data ? medium=existing:nvme"`, "", ""), Options{}, `the plan uses the pod's volume "nvme", and the pod has no volume of that name`},
		{"a short line", job(`stager.dev/in.train: "s3://b/train/"`, "", ""), Options{}, `line 7, column 42: Job/train: train: "s3://b/train/" has no " -> "`},
		{"another node", job("", "      nodeSelector: {disk: hdd}", ""), Options{Plan: []byte(strings.Replace(onePlan, "inputs:", "nodeSelector: {disk: nvme}\n  inputs:", 1))}, "the pod selects nodes with disk: hdd, and the plan nodes with nvme"},
		{"an unknown level", job(train, "", ""), Options{PodSecurity: "lax"}, `"lax" is not a level of pod security`},
		{"privileges in a restricted namespace", job(train+`, stager.dev/privileges: files`, "", ""), Options{PodSecurity: Restricted}, "line 7, column 97: Job/train: stager.dev/privileges: files runs stager as root, and the namespace enforces the Pod Security level restricted, which forbids it; remove the annotation and write runAsUser"},
		{"an image that is none", job(train+`, stager.dev/image: "two words"`, "", ""), Options{}, `"two words" is not the name of an image`},
		{"no CPU", job(train+`, stager.dev/cpu: "0"`, "", ""), Options{}, "stager.dev/cpu must be above 0 (got 0)"},
		{"little memory", job(train+`, stager.dev/memory-limit: 64Mi`, "", ""), Options{}, "stager.dev/memory-limit must be at least 128Mi (got 64Mi)"},
		{"a request above the usual limit", job(train+`, stager.dev/memory: 1Gi`, "", ""), Options{}, "stager.dev/memory is above stager.dev/memory-limit; write both"},
		{"a limit below the usual request", job(train+`, stager.dev/cpu-limit: 50m`, "", ""), Options{}, "stager.dev/cpu is above stager.dev/cpu-limit; write both"},
		{"unknown privileges", job(train+`, stager.dev/privileges: all`, "", ""), Options{}, `unknown value "all"; use files`},
		{"a count that is none", job(train+`, stager.dev/count: many`, "", ""), Options{}, `"many" is not a number of pods`},
		{"a path of placeholders", job(`stager.dev/in.train: "s3://b/ -> /{job}"`, "", ""), Options{}, "its path begins with a placeholder"},
		{"an alias in the way", "a: &v []\n" + job(train, "      volumes: *v", ""), Options{}, "line 11, column 16: Job/train: spec.volumes is the alias *v"},
		{"an anchor in the way", job(train, "      volumes: &v [{name: a}]", "") + "other: *v\n", Options{}, "spec.volumes has the anchor &v, to which an alias elsewhere refers"},
		{"a merge in the way", "a: &v {volumes: []}\n" + job(train, "      <<: *v", ""), Options{}, "inherits fields from an anchor by <<"},
		{"a key twice", job(train, "      volumes: []\n      volumes: []", ""), Options{}, "duplicate volumes in spec; write it once"},
		{"a tab", "a:\n\tb: c\n", Options{}, "line 2, column 1: this line is indented with a tab"},
		{"no YAML", "a: [1, 2\n", Options{}, "is not closed"},
		{"no YAML in the second document", "a: 1\n---\nb: {\n", Options{}, "line 3, column 4: this { is not closed"},
		{"a damaged record", job(train+`, stager.dev/undo: "{"`, "", ""), Options{}, "stager.dev/undo is not what inject wrote"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			result, err := Inject([]byte(tt.file), tt.opts)
			if result != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got the error\n%v\nwant one with\n%s", err, tt.want)
			}
			var faults Faults
			if !errors.As(err, &faults) {
				t.Errorf("got a %T, want Faults", err)
			}
		})
	}
}

// Users can write records too. Parts of a record that inject would never write are ignored.
func TestRecordsThatInjectNeverWrote(t *testing.T) {
	for _, record := range []string{
		`{"was":{"spec/volumes/name=a":["b","c"],"":["",""],"^":["",""],"^/x/y":["",""]}}`,
		`{"empty":{"spec/volumes/name=a":"b"},"put":["spec/volumes/name=a","","^","^/template"]}`,
		`{"made":["spec","","/","spec/containers/name=main/name"],"put":["spec/containers/name=nobody/x"]}`,
		`[]`, `null`,
	} {
		file := job("stager.dev/undo: '"+record+"'", "      volumes: [{name: a, emptyDir: {}}]", "")
		result, err := Uninject([]byte(file))
		if err != nil {
			continue // refused
		}
		for _, d := range yamledit.Split(result.Output) {
			if err := yamledit.Parse(d); err != nil {
				t.Errorf("%s leaves what nobody can read: %v\n%s", record, err, result.Output)
			}
		}
	}
}

// All faults of a file are reported at once.
func TestFaultsAreReportedTogether(t *testing.T) {
	file := job(`stager.dev/in.a: "x"`, "", "") + "---\n" + job(`stager.dev/gate: x, stager.dev/in.a: "s3://b/ -> /a"`, "", "")
	_, err := Inject([]byte(file), Options{})
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 2 || faults[0].Line != 7 || faults[1].Line != 22 {
		t.Errorf("got %v, want two faults, in lines 7 and 22", err)
	}
}

func TestWarnings(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		opts       Options
		want       string // "": none
	}{
		{"all is well", job(train, "", ""), Options{}, ""},
		{"a short grace", job(`stager.dev/out.o: "/out -> s3://b/"`, "      terminationGracePeriodSeconds: 60", ""), Options{JobPolicies: true}, "terminationGracePeriodSeconds was 60 and is now 630: the last upload may take 10m0s"},
		{"a replacement beside it", job(`stager.dev/out.o: "/out -> s3://b/"`, "", ""), Options{}, "set podReplacementPolicy: Failed to make it wait"},
		{"an unknown user of inputs", job(train, "", ""), Options{PodSecurity: Restricted}, ""},
		{"an unknown user of outputs", job(saves+`, stager.dev/finalize: sidecar`, "", "        command: [train]"), Options{JobPolicies: true}, "the user of container main is not known, so stager runs as user 65532 and reads outputs by group 65532: a file that only its owner may read is not saved (exit code 75); write runAsUser, or stager.dev/privileges: files"},
		{"an unknown user with a group", job(saves+`, stager.dev/finalize: sidecar`, "      securityContext: {fsGroup: 2000}", "        command: [train]"), Options{JobPolicies: true}, "reads outputs by group 2000"},
		{"an unknown user of a wrapped command", job(saves, "", "        command: [train]"), Options{JobPolicies: true}, ""},
		{"an unknown user with privileges", job(saves+`, stager.dev/finalize: sidecar, stager.dev/privileges: files`, "", "        command: [train]"), Options{JobPolicies: true}, ""},
		{"a claim whose group may change", job(train, "      volumes: [{name: data, persistentVolumeClaim: {claimName: d}}]", ""), Options{}, "the pod has no fsGroup and gets 65532: Kubernetes may change the group of the files of volume data to it"},
		{"a directory of the node", job(`stager.dev/in.train: "s3://b/ -> /data ? medium=host:/nvme"`, "", ""), Options{}, "/data is a directory of the node, whose group Kubernetes does not change"},
		{"an index without its plugin", strings.Replace(job(train, "", ""), "batch/v1", "batch.volcano.sh/v1alpha1", 1), Options{}, ""},
		{"Volcano without its plugin", `{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: x}, spec: {tasks: [{name: w, replicas: 2, template: ` + podOf + `}]}}`, Options{Plan: []byte(onePlan)}, "add plugins: {env: []} to the job"},
		{"an end before its files have settled", job(`stager.dev/out.o: "/out -> s3://b/ ? quietPeriod=20s&deadline=5s"`, "", ""), Options{JobPolicies: true}, "output o: its deadline of 5s ends before the last files have been unchanged for 20s (quietPeriod)"},
		{"outputs whose command is the image's", job(saves, "", ""), Options{JobPolicies: true}, "outputs can be lost: container main has no command, so stager cannot keep it running until its outputs are saved; if the sidecar is down when it ends (out of memory, in back-off), the pod succeeds and unsaved outputs are deleted with its volumes; write its command out"},
		{"outputs of a command", job(saves, "      securityContext: {runAsUser: 1000}", "        command: [train]"), Options{JobPolicies: true}, ""},
		{"outputs that are not required", job(`stager.dev/out.o: "/out -> s3://b/ ? required=false"`, "      securityContext: {runAsUser: 1000}", ""), Options{JobPolicies: true}, ""},
		{"outputs left to the sidecar", job(saves+`, stager.dev/finalize: sidecar`, "      securityContext: {runAsUser: 1000}", ""), Options{JobPolicies: true}, ""},
		{"a shell that gets no SIGTERM", job(saves+`, stager.dev/finalize: sidecar`, "", "        command: [/bin/sh, -c, train]"), Options{JobPolicies: true}, "the command of container main is a shell, which ignores SIGTERM as the first process of a container unless it traps it"},
		{"a shell that is not the first process", job(saves, "      securityContext: {runAsUser: 1000}", "        command: [/bin/sh, -c, train]"), Options{JobPolicies: true}, ""},
		{"outputs of two containers", strings.Replace(job(saves+`, stager.dev/containers: "main,more"`, "", "        command: [train]"), "containers:\n", "containers:\n      - {name: more, image: x, command: [more]}\n", 1), Options{JobPolicies: true}, "outputs can be lost: stager.dev/containers names 2 containers"},
		{"Secrets in the job's container", job(`stager.dev/out.o: "/out -> s3://b/ ? secret=rw", stager.dev/finalize: run`, "", "        command: [train]"), Options{JobPolicies: true}, "container main gets the Secrets of the stores, because stager.dev/finalize: run needs them there: [rw]"},
		{"a prefix of another domain", job(`stager.io/in.train: "s3://b/train/ -> /data"`, "", ""), Options{}, "the annotation stager.io/in.train is not one of stager's, which begin with stager.dev/"},
		{"a prefix with a slip", job(train+`, stagr.dev/gate: none`, "", ""), Options{}, "the annotation stagr.dev/gate is not one of stager's"},
		{"others' prefixes", job(train+`, stage.example.com/a: b, storage.dev/b: c, sidecar.istio.io/inject: "false"`, "", ""), Options{}, ""},
		{"an elastic job", kinds[9].text, Options{Plan: []byte(onePlan)}, "an elastic job has no fixed number of pods"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			result, err := Inject([]byte(tt.file), tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(slices.Concat(result.Objects[0].Unmatched, result.Objects[0].Warnings), "\n")
			if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("got the warnings %q, want %q", got, tt.want)
			}
		})
	}
}

// Objects without a pod, or of an unknown kind, stay unchanged byte for byte, and the result says
// so.
func TestObjectsLeftAlone(t *testing.T) {
	for _, tt := range []struct{ name, file, want string }{
		{"no pod template", "apiVersion: v1\nkind: Service\nmetadata: {name: web, annotations: {" + train + "}}\n", "Service/web: left alone: it has no pod template"},
		{"an unknown kind", "apiVersion: example.com/v1\nkind: Robot\nmetadata: {name: r}\nspec: {arms: 2}\n", "Robot/r: left alone: it has no pod template"},
		{"a Job without its template", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec: {completions: 2}\n", "Job/train: left alone: it has no pod template"},
		{"no annotations", job("", "", ""), "Job/train: left alone: it requests no data: it has no annotation stager.dev/…"},
		{"opted out", strings.Replace(job(train, "", ""), "{name: train}", `{name: train, labels: {stager.dev/inject: "false"}}`, 1), "Job/train: left alone: it says stager.dev/inject: false"},
		{
			"an Argo workflow, whose pods are the webhook's",
			"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  podMetadata: {labels: {stager.dev/inject: \"true\"}}\n  templates: [{name: t, container: {image: x}}]\n",
			`Workflow/w: left alone: Argo creates its pods; the webhook injects the pods of templates whose metadata has the annotations and the label stager.dev/inject: "true"`,
		},
	} {
		result, err := Inject([]byte(tt.file), Options{})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		o := result.Objects[0]
		if got := fmt.Sprintf("%s: %s: %s", o, o.Action, o.Reason); got != tt.want || string(result.Output) != tt.file {
			t.Errorf("%s: got %s, want %s and the file as it was", tt.name, got, tt.want)
		}
	}
}

// Pod-level resources include those of stager's containers.
func TestPodLevelResources(t *testing.T) {
	file := job(`stager.dev/in.train: "s3://b/train/ -> /data ? mode=window&size=1Gi"`, `      resources: {requests: {cpu: "2", memory: 1Gi}, limits: {memory: 4Gi}}`, "")
	result, err := Inject([]byte(file), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := "resources: {requests: {cpu: 2100m, memory: 1152Mi}, limits: {memory: 4608Mi}}"
	if !strings.Contains(string(result.Output), want) {
		t.Errorf("got\n%s\nwant %s", result.Output, want)
	}
	holds(t, []byte(file), Options{})
}

// Options after a question mark without spaces were treated as a part of the path: the entire input
// was fetched into a directory of that name.
func TestOptionsNeedNoSpaces(t *testing.T) {
	in := func(line string) string { return job("stager.dev/in.d: "+line, "", "") }
	out := func(line string) string { return job("stager.dev/out.o: "+line, "", "") }
	for _, tt := range []struct{ line, same string }{
		{in(`"s3://b/x/ -> /d?mode=window&size=10Gi"`), in(`"s3://b/x/ -> /d ? mode=window&size=10Gi"`)},
		{in(`"s3://b/x/ -> /d ?mode=window&size=10Gi"`), in(`"s3://b/x/ -> /d ? mode=window&size=10Gi"`)},
		{in(`"s3://b/x/ -> /d? mode=window&size=10Gi"`), in(`"s3://b/x/ -> /d ? mode=window&size=10Gi"`)},
		{in(`"s3://b/x/?region=eu -> /d?mode=window&size=10Gi"`), in(`"s3://b/x/?region=eu -> /d ? mode=window&size=10Gi"`)},
		{out(`"/o -> s3://b/x/?keep=3&commit=checkpoint"`), out(`"/o -> s3://b/x/ ? keep=3&commit=checkpoint"`)},
	} {
		var pods [2]string
		for i, file := range []string{tt.line, tt.same} {
			result, err := Inject([]byte(file), Options{})
			if err != nil {
				t.Fatal(err)
			}
			_, pods[i], _ = strings.Cut(string(result.Output), "    spec:")
		}
		if pods[0] != pods[1] {
			t.Errorf("got\n%s\nwant\n%s", pods[0], pods[1])
		}
	}
	// A URL keeps its own query.
	result, err := Inject([]byte(out(`"/o -> s3://b/x/?region=eu"`)), Options{})
	if err != nil || !strings.Contains(string(result.Output), "destination: \"s3://b/x/?region=eu\"") {
		t.Errorf("got %v, %v, want the destination with its query", result, err)
	}
}
