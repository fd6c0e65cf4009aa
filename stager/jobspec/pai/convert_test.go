package pai

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/stager/internal/golden"
	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// here are the options that the tutorial's job needs.
var here = Options{User: "alice", DefaultFS: "hdfs://namenode:8020"}

func tutorial(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/tutorial.jsonc")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func convert(t *testing.T, file string, opts Options) *Result {
	t.Helper()
	result, err := Convert([]byte(file), opts)
	if err != nil {
		t.Fatal(err)
	}
	decodes(t, result.Output)
	return result
}

// jobSet has the fields of JobSet's type that are used here.
type jobSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Suspend bool `json:"suspend"`
		Network struct {
			EnableDNSHostnames       bool `json:"enableDNSHostnames"`
			PublishNotReadyAddresses bool `json:"publishNotReadyAddresses"`
		} `json:"network"`
		FailurePolicy struct {
			MaxRestarts int32 `json:"maxRestarts"`
			Rules       []struct {
				Name                string   `json:"name"`
				Action              string   `json:"action"`
				OnJobFailureReasons []string `json:"onJobFailureReasons"`
			} `json:"rules"`
		} `json:"failurePolicy"`
		SuccessPolicy struct {
			Operator             string   `json:"operator"`
			TargetReplicatedJobs []string `json:"targetReplicatedJobs"`
		} `json:"successPolicy"`
		ReplicatedJobs []struct {
			Name     string                  `json:"name"`
			Template batchv1.JobTemplateSpec `json:"template"`
		} `json:"replicatedJobs"`
	} `json:"spec"`
}

// objects are the objects of a result.
type objects struct {
	set     *jobSet
	job     *batchv1.Job
	service *corev1.Service
	secret  *corev1.Secret
}

// decodes parses manifests with Kubernetes' own types and fails on unknown fields.
func decodes(t *testing.T, file []byte) (all objects) {
	t.Helper()
	for _, d := range yamledit.Split(file) {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(d.Text, &meta); err != nil {
			t.Fatal(err)
		}
		var into any
		switch meta.Kind {
		case "JobSet":
			all.set = new(jobSet)
			into = all.set
		case "Job":
			all.job = new(batchv1.Job)
			into = all.job
		case "Service":
			all.service = new(corev1.Service)
			into = all.service
		case "Secret":
			all.secret = new(corev1.Secret)
			into = all.secret
		default:
			t.Fatalf("an object of kind %q", meta.Kind)
		}
		if err := yaml.UnmarshalStrict(d.Text, into); err != nil {
			t.Errorf("%s: %v\n%s", meta.Kind, err, d.Text)
		}
	}
	return all
}

// one returns a job with one role, with additional fields in the job and in the role.
func one(inJob, inRole string) string {
	return `{"jobName": "j", "image": "i", ` + inJob + ` "taskRoles": [{"name": "w", "taskNumber": 3, "cpuNumber": 1, "memoryMB": 1024, "gpuNumber": 1, ` + inRole + ` "command": "run"}]}`
}

// Each job of testdata is converted to the manifests next to it.
func TestGolden(t *testing.T) {
	for _, file := range []string{"tutorial.jsonc", "single.jsonc", "second.yaml"} {
		name := strings.TrimSuffix(file, path.Ext(file))
		t.Run(name, func(t *testing.T) {
			job, err := os.ReadFile("testdata/" + file)
			if err != nil {
				t.Fatal(err)
			}
			result := convert(t, string(job), here)
			golden.File(t, "testdata/"+name+".out.yaml", result.Output)
			again, err := jobspec.Inject(result.Output, jobspec.Options{JobPolicies: true})
			if err != nil || string(again.Output) != string(result.Output) {
				t.Errorf("injected again it is another, or refused: %v", err)
			}
		})
	}
}

// referenceNames are all variables of OpenPAI's job reference, and the additional ones of its
// complete example, for the tutorial's job.
const referenceNames = `PAI_JOB_NAME PAI_USER_NAME PAI_DEFAULT_FS_URI PAI_TASK_ROLE_COUNT PAI_TASK_ROLE_LIST
	PAI_TASK_ROLE_TASK_COUNT_ps_server PAI_TASK_ROLE_TASK_COUNT_worker
	PAI_HOST_IP_ps_server_0 PAI_HOST_IP_ps_server_1 PAI_HOST_IP_worker_0 PAI_HOST_IP_worker_1
	PAI_PORT_LIST_ps_server_0_http PAI_PORT_LIST_ps_server_0_ssh PAI_PORT_LIST_ps_server_1_http PAI_PORT_LIST_ps_server_1_ssh
	PAI_PORT_LIST_worker_0_http PAI_PORT_LIST_worker_0_ssh PAI_PORT_LIST_worker_1_http PAI_PORT_LIST_worker_1_ssh
	PAI_RESOURCE_ps_server PAI_RESOURCE_worker PAI_MIN_FAILED_TASK_COUNT_ps_server PAI_MIN_FAILED_TASK_COUNT_worker
	PAI_MIN_SUCCEEDED_TASK_COUNT_ps_server PAI_MIN_SUCCEEDED_TASK_COUNT_worker
	PAI_CURRENT_TASK_ROLE_NAME PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX
	PAI_DATA_DIR PAI_OUTPUT_DIR PAI_CODE_DIR PAI_DATA_URI PAI_OUTPUT_URI PAI_TASK_INDEX
	PAI_TASK_ROLE_ps_server_HOST_LIST PAI_TASK_ROLE_worker_HOST_LIST batch_size job_model`

func TestVariablesAreSetInEveryRole(t *testing.T) {
	set := decodes(t, convert(t, string(tutorial(t)), here).Output).set
	for _, r := range set.Spec.ReplicatedJobs {
		main := r.Template.Spec.Template.Spec.Containers[0]
		has := map[string]string{}
		for _, v := range main.Env {
			if _, twice := has[v.Name]; twice {
				t.Errorf("%s: %s is set twice", r.Name, v.Name)
			}
			has[v.Name] = v.Value
		}
		for _, name := range strings.Fields(referenceNames) {
			if _, ok := has[name]; !ok {
				t.Errorf("%s: %s is not set", r.Name, name)
			}
		}
		uses := regexp.MustCompile(`\$([A-Za-z_]\w*)`).FindAllStringSubmatch(main.Command[len(main.Command)-1], -1) // after stager wrap
		if len(uses) < 7 {
			t.Errorf("%s: the command uses %d variables, want 7 at least", r.Name, len(uses))
		}
		for _, m := range uses {
			if has[m[1]] == "" && m[1] != "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX" {
				t.Errorf("%s: the command uses $%s, which is %q", r.Name, m[1], has[m[1]])
			}
		}
		const workers = "tensorflow-distributed-jobguid-worker-0-0.tensorflow-distributed-jobguid:20000,tensorflow-distributed-jobguid-worker-0-1.tensorflow-distributed-jobguid:20000"
		if got := has["PAI_TASK_ROLE_worker_HOST_LIST"]; got != workers {
			t.Errorf("the workers are at %s, want %s", got, workers)
		}
	}
}

func TestConvertOneRoleToAnIndexedJob(t *testing.T) {
	o := decodes(t, convert(t, one(`"retryCount": 0,`, `"shmMB": 512,`), here).Output)
	if o.set != nil || o.job == nil || o.service == nil {
		t.Fatalf("got %+v, want a Job and a Service", o)
	}
	s := o.job.Spec
	if *s.CompletionMode != batchv1.IndexedCompletion || *s.Completions != 3 || *s.Parallelism != 3 || *s.BackoffLimit != 0 {
		t.Errorf("the Job is %+v", s)
	}
	if s.Template.Spec.Subdomain != o.service.Name || o.service.Spec.Selector["batch.kubernetes.io/job-name"] != o.job.Name {
		t.Errorf("the Service %+v does not find the pods of %s", o.service.Spec, s.Template.Spec.Subdomain)
	}
	limits := s.Template.Spec.Containers[0].Resources.Limits
	if limits.Cpu().String() != "1" || limits.Memory().String() != "1Gi" || limits["nvidia.com/gpu"] != s.Template.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] {
		t.Errorf("limits = %v", limits)
	}
	if shm := s.Template.Spec.Volumes[0].EmptyDir; shm.Medium != corev1.StorageMediumMemory || shm.SizeLimit.String() != "512Mi" {
		t.Errorf("/dev/shm is %+v", shm)
	}
}

func TestRetriesMakeAJobSet(t *testing.T) {
	for retries, want := range map[string]int32{"3": 3, "-1": 2147483647} {
		o := decodes(t, convert(t, one(`"retryCount": `+retries+`,`, ""), here).Output)
		if o.set == nil || o.set.Spec.FailurePolicy.MaxRestarts != want || len(o.set.Spec.FailurePolicy.Rules) != 1 {
			t.Errorf("retryCount %s: got %+v, want %d restarts", retries, o.set, want)
		}
	}
}

func TestTaskFailureAndSuccessCounts(t *testing.T) {
	for _, test := range []struct {
		in, warning string
		check       func(batchv1.JobSpec) bool
	}{
		{`"minFailedTaskCount": 1,`, "", func(s batchv1.JobSpec) bool { return *s.BackoffLimit == 0 && s.BackoffLimitPerIndex == nil }},
		{`"minFailedTaskCount": 3,`, "fewer than 3 tasks fail", func(s batchv1.JobSpec) bool {
			return s.BackoffLimit == nil && *s.BackoffLimitPerIndex == 0 && *s.MaxFailedIndexes == 2
		}},
		{`"minFailedTaskCount": null,`, "replaced by 0", func(s batchv1.JobSpec) bool {
			return strings.Contains(s.Template.Spec.Containers[0].Command[2], "(\nrun\n)\n")
		}},
		{`"minFailedTaskCount": null, "minSucceededTaskCount": 2,`, "fewer than 2 tasks succeed", func(s batchv1.JobSpec) bool {
			return *s.BackoffLimitPerIndex == 0 && s.MaxFailedIndexes == nil && *s.SuccessPolicy.Rules[0].SucceededCount == 2
		}},
		{`"minSucceededTaskCount": 2,`, "", func(s batchv1.JobSpec) bool { return *s.SuccessPolicy.Rules[0].SucceededCount == 2 }},
	} {
		result := convert(t, one("", test.in), Options{Data: DataURI})
		if job := decodes(t, result.Output).job; !test.check(job.Spec) {
			t.Errorf("%s: got %+v", test.in, job.Spec)
		}
		if got := strings.Join(result.Warnings, "\n"); test.warning == "" && got != "" || !strings.Contains(got, test.warning) {
			t.Errorf("%s: warned %q, want %q", test.in, got, test.warning)
		}
	}
}

func TestOptions(t *testing.T) {
	const job = `"virtualCluster": "Team_A", "gpuType": "K80", "authFile": "/auth", "extras": {"a": [1, 2,], /* b */}, "jobEnvs": {"x": "$(PAI_JOB_NAME) $$", "n": 1.50, "b": true},
		"dataDir": "/d", "outputDir": "s3://b/o", "codeDir": "$PAI_DEFAULT_FS_URI/a/src/",`
	opts := here
	opts.GPUTypes = map[string]string{"K80": "gpu=Tesla-K80"}
	opts.Queue, opts.DataSize, opts.ReadSecret, opts.WriteSecret = "q", 80<<30, "r", "w"
	opts.Registry = []byte("docker.io\r\nbob\r\nsecret\r\n")
	result := convert(t, one(job, ""), opts)
	o := decodes(t, result.Output)
	pod := o.job.Spec.Template.Spec
	if o.job.Labels[queueLabel] != "q" || !*o.job.Spec.Suspend || pod.NodeSelector["gpu"] != "Tesla-K80" {
		t.Errorf("queue %v, suspend %v, nodes %v", o.job.Labels, o.job.Spec.Suspend, pod.NodeSelector)
	}
	if o.job.Annotations[noteExtras] != `{"a":[1,2]}` || o.job.Annotations[noteCluster] != "Team_A" {
		t.Errorf("annotations = %v", o.job.Annotations)
	}
	const config = `{"auths":{"https://index.docker.io/v1/":{"auth":"Ym9iOnNlY3JldA==","password":"secret","username":"bob"}}}`
	if got := string(o.secret.Data[".dockerconfigjson"]); got != config || pod.ImagePullSecrets[0].Name != o.secret.Name {
		t.Errorf("the registry's Secret is %s, and the pod's %v", got, pod.ImagePullSecrets)
	}
	env := map[string]string{}
	for _, v := range pod.Containers[0].Env {
		env[v.Name] = v.Value
	}
	for name, want := range map[string]string{
		"x": "$$(PAI_JOB_NAME) $$$$", "n": "1.50", "b": "true",
		"PAI_DATA_DIR": "/pai/data", "PAI_DATA_URI": "hdfs://namenode:8020/d", "PAI_CODE_DIR": "/pai/code/src",
	} {
		if env[name] != want {
			t.Errorf("%s = %q, want %q", name, env[name], want)
		}
	}
	for _, want := range []string{
		"source: hdfs://namenode:8020/d/\n", "volume: data", "size: 80Gi", "destination: \"s3://b/o/w/{index}/\"", "credentials: {secret: r}", "credentials: {secret: w}",
		"source: hdfs://namenode:8020/a/src/\n", `maxBytes: "200000000"`, "mountPath: /pai/code/src, readOnly: true", "cp -r /pai/code/* ./ || exit",
	} {
		if !strings.Contains(string(result.Output), want) {
			t.Errorf("%q is not in what came", want)
		}
	}
	opts.Data, opts.Queue = DataURI, NoQueue
	o = decodes(t, convert(t, one(job, ""), opts).Output)
	if o.job.Labels != nil || o.job.Spec.Suspend != nil {
		t.Errorf("without a queue: %v, suspend %v", o.job.Labels, o.job.Spec.Suspend)
	}
	for _, v := range o.job.Spec.Template.Spec.Containers[0].Env {
		if v.Name == "PAI_DATA_DIR" && v.Value != "hdfs://namenode:8020/d" {
			t.Errorf("PAI_DATA_DIR = %s, want the URL", v.Value)
		}
	}
}

func TestOutputDirOfOpenPAI(t *testing.T) {
	result := convert(t, strings.Replace(one("", ""), `"taskNumber": 3`, `"taskNumber": 1`, 1), here)
	if want := "destination: hdfs://namenode:8020/Output/alice/j/\n"; !strings.Contains(string(result.Output), want) {
		t.Errorf("%q is not in\n%s", want, result.Output)
	}
}

func TestPortsStayApart(t *testing.T) {
	r := role{tasks: 2, ports: []portType{{label: "a", number: 2}, {label: "b", begin: 20001, number: 2}, {label: "c", number: 1}}}
	first, next := r.portsFrom(20000)
	if want := []int{20003, 20001, 20005}; !cmp.Equal(first, want) || next != 20006 {
		t.Errorf("ports begin at %v and end before %d, want %v and 20006", first, next, want)
	}
}

func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"train", "Train", "t_rain", "t.rain", "t~rain", "9x", "x9", "---", "~", "a-", strings.Repeat("long", 30), strings.Repeat("long", 31)} {
		got := dnsName(name, 30)
		if !regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`).MatchString(got) || len(got) > 30 || seen[got] != "" {
			t.Errorf("%q becomes %q, as does %q", name, got, seen[got])
		}
		seen[got] = name
	}
	if got := dnsName("train", 30); got != "train" {
		t.Errorf("a good name becomes %q", got)
	}
}

func TestRolesThatAShellCannotName(t *testing.T) {
	result := convert(t, strings.Replace(one("", ""), `"name": "w"`, `"name": "w.x~y"`, 1), here)
	for _, want := range []string{"PAI_TASK_ROLE_w_x_y_HOST_LIST", "value: w.x~y"} {
		if !strings.Contains(string(result.Output), want) {
			t.Errorf("%s is not in what came", want)
		}
	}
	if len(result.Warnings) == 0 {
		t.Error("nothing is said of it")
	}
}
