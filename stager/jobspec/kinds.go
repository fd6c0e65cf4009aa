package jobspec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// jobIdentity is what the object around a pod template defines about its pods.
type jobIdentity struct {
	role    string         // part of the job to which they belong; "": it has one part
	job     source         // name of the job
	uid     source         // unique among jobs of this name; empty if pods cannot read one
	attempt source         // number of earlier attempts
	index   source         // index among the pods that share the data
	helpers []variable     // variables that index refers to
	count   string         // number of these pods; "": stager finds out, or the user sets it
	jobSpec *yamledit.Node // spec of the batch/v1 Job that creates the pods, which has the policies
	caution string         // warning about index and count
	needs   string         // warning about requirements on the cluster
}

// source is the source of a variable's value in a pod: a literal, or a field.
type source struct{ text, field string }

func literalSource(text string) source { return source{text: text} }
func label(name string) source         { return source{field: "metadata.labels['" + name + "']"} }
func annotationSource(name string) source {
	return source{field: "metadata.annotations['" + name + "']"}
}

// variable is an environment variable.
type variable struct {
	name string
	source
}

// Labels and annotations in which controllers store the index of a pod.
const (
	jobNameLabel   = "batch.kubernetes.io/job-name"
	indexLabel     = "batch.kubernetes.io/job-completion-index"
	failuresNote   = "batch.kubernetes.io/job-index-failure-count"
	jobSetName     = "jobset.sigs.k8s.io/jobset-name"
	jobSetIndex    = "jobset.sigs.k8s.io/job-index"
	jobSetAttempt  = "jobset.sigs.k8s.io/restart-attempt"
	kubeflowName   = "training.kubeflow.org/job-name"
	kubeflowIndex  = "training.kubeflow.org/replica-index"
	argoName       = "workflows.argoproj.io/workflow"
	frameworkName  = "FC_FRAMEWORK_NAME"
	frameworkIndex = "FC_TASK_INDEX"
	frameworkTries = "FC_FRAMEWORK_ATTEMPT_ID"
)

// row defines where a kind has its pod templates and what it defines about the pods. In the
// pattern, [] is any item and * any key.
type row struct {
	kinds   []string
	group   string // API group, or ""; a kind may occur in two groups
	pattern string
	tell    func(t *template, f *jobIdentity)
}

// table has every kind that defines more about its pods than the template does. Kinds that are not
// in it, such as a Deployment, are found by structure. Their pods have no index, and each reads all
// of the data.
var table = []row{
	{[]string{"Pod"}, "", "", tellPod},
	{[]string{"Job"}, "batch", "spec.template", tellJob},
	{[]string{"CronJob"}, "batch", "spec.jobTemplate.spec.template", tellJob},
	{[]string{"JobSet"}, "jobset.x-k8s.io", "spec.replicatedJobs.[].template.spec.template", tellJobSet},
	{[]string{"TrainingRuntime", "ClusterTrainingRuntime"}, "trainer.kubeflow.org", "spec.template.spec.replicatedJobs.[].template.spec.template", tellRuntime},
	{[]string{"PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"}, "kubeflow.org", "spec.*.*.template", tellKubeflow},
	{[]string{"RayCluster", "RayJob", "RayService"}, "ray.io", "spec.**.template", tellRay},
	{[]string{"Job"}, "batch.volcano.sh", "spec.tasks.[].template", tellVolcano},
	{[]string{"SparkApplication"}, "sparkoperator.k8s.io", "spec.*.template", tellSpark},
	{[]string{"ScheduledSparkApplication"}, "sparkoperator.k8s.io", "spec.template.*.template", tellSpark},
	{[]string{"LLMInferenceService", "LLMInferenceServiceConfig"}, "serving.kserve.io", "", tellLLM},
	{[]string{"Service", "Configuration"}, "serving.knative.dev", "spec.template", tellKnative},
	{[]string{"Framework"}, "frameworkcontroller.microsoft.com", "spec.taskRoles.[].task.pod", tellFramework},
}

// job returns the identity from the table.
func (t *template) job() jobIdentity {
	f := jobIdentity{job: literalSource(t.object.name)}
	if r := t.known(); r != nil {
		r.tell(t, &f)
	}
	return f
}

// known returns the row of the table that matches a template, or nil.
func (t *template) known() *row {
	group := t.object.group()
	for i, r := range table {
		if r.group == group && slices.Contains(r.kinds, t.object.kind) && fits(t.path, r.pattern) {
			return &table[i]
		}
	}
	return nil
}

// fits reports whether a path matches a pattern.
func fits(path []string, pattern string) bool {
	if pattern == "" {
		return len(path) == 0
	}
	want := strings.Split(pattern, ".")
	for i, w := range want {
		if w == "**" {
			return len(path) > i && path[len(path)-1] == want[len(want)-1]
		}
		if i >= len(path) || w != path[i] && w != "*" && !(w == "[]" && path[i][0] == '[') {
			return false
		}
	}
	return len(path) == len(want)
}

// up returns the ancestor of the template that is the given number of steps above.
func (t *template) up(steps int) *yamledit.Node { return t.chain[len(t.chain)-1-steps] }

// number returns the integer at a key, or fallback if there is none.
func number(n *yamledit.Node, key string, fallback int) int {
	if i, err := strconv.Atoi(n.Get(key).Text()); err == nil {
		return i
	}
	return fallback
}

func tellPod(t *template, f *jobIdentity) {
	f.uid = uidOfPod(t)
	labels := t.node.Get("metadata", "labels")
	for _, name := range []string{jobSetName, kubeflowName, jobNameLabel, argoName} {
		if labels.Get(name) != nil {
			f.job = label(name)
			break
		}
	}
	if labels.Get(jobSetAttempt) != nil {
		f.attempt = label(jobSetAttempt)
	} else if t.own(failuresNote) != nil {
		f.attempt = annotationSource(failuresNote)
	}
	for _, name := range []string{kubeflowIndex, indexLabel} {
		if labels.Get(name) != nil {
			f.index = label(name)
			f.caution = "the number of pods is unknown to a pod: set the annotation " + AnnotationCount + ", or inject the Job instead of its pods"
			break
		}
	}
}

func tellJob(t *template, f *jobIdentity) {
	f.jobSpec = t.up(1)
	f.job, f.uid = label(jobNameLabel), label(controllerUID)
	if f.jobSpec.Get("backoffLimitPerIndex") != nil {
		f.attempt = annotationSource(failuresNote)
	}
	if f.jobSpec.Get("completionMode").Text() == "Indexed" {
		f.count = strconv.Itoa(number(f.jobSpec, "completions", 1))
	}
}

func tellJobSet(t *template, f *jobIdentity) {
	f.jobSpec = t.up(1)
	group := t.up(3) // the replicatedJob: template, spec, template
	f.role = group.Get("name").Text()
	f.job, f.uid, f.attempt = label(jobSetName), label(jobSetUID), label(jobSetAttempt)
	jobs := number(group, "replicas", 1)
	pods := number(f.jobSpec, "completions", number(f.jobSpec, "parallelism", 1))
	f.count = strconv.Itoa(jobs * pods)
	f.index, f.helpers = jobSetPlace(jobs, pods)
}

func tellRuntime(t *template, f *jobIdentity) {
	f.role = t.up(3).Get("name").Text()
	f.job, f.uid, f.attempt = label(jobSetName), label(jobSetUID), label(jobSetAttempt)
	f.caution = "the runtime does not know the number of nodes of a TrainJob: set shard in the plan, or the pods exit with code 78"
}

// together are the roles of a Kubeflow job that share the data, in the order of their ranks.
// Others, such as parameter servers, each read all of their data.
var together = []string{"Chief", "Master", "Worker"}

func tellKubeflow(t *template, f *jobIdentity) {
	f.job = label(kubeflowName)
	roles, role := t.up(2), t.path[len(t.path)-2]
	f.role = strings.ToLower(role)
	if !slices.Contains(together, role) {
		return
	}
	if t.object.root.Get("spec", "elasticPolicy") != nil {
		f.caution = "an elastic job has no fixed number of pods: set shard in the plan to define how its data are divided; otherwise each pod gets all of it"
		return
	}
	before, all := 0, 0
	for _, name := range together {
		if name == role {
			before = all
		}
		if spec := roles.Get(name); spec != nil {
			all += number(spec, "replicas", 1)
		}
	}
	if all == 1 {
		return
	}
	f.count = strconv.Itoa(all)
	f.index = label(kubeflowIndex)
	if before > 0 {
		f.helpers = []variable{{"STAGER_POD_INDEX", f.index}}
		f.index = literalSource(fmt.Sprintf("$(STAGER_POD_INDEX)+%d", before))
	}
}

func tellRay(t *template, f *jobIdentity) {
	f.role = t.up(1).Get("groupName").Text()
	if f.role == "" && len(t.path) > 1 {
		f.role = strings.ToLower(strings.TrimSuffix(t.path[len(t.path)-2], "GroupSpec"))
	}
}

func tellSpark(t *template, f *jobIdentity) { f.role = t.path[len(t.path)-2] }

func tellLLM(t *template, f *jobIdentity) {
	if spec := t.object.root.Get("spec"); !spec.Get("worker").IsNull() || !spec.Get("prefill").IsNull() {
		f.needs = "only the pods of spec.template get the data, and those of spec.worker and spec.prefill do not"
	}
}

func tellKnative(_ *template, f *jobIdentity) {
	f.needs = "Knative takes init containers, emptyDir volumes, fields of the pod in variables, security contexts and a grace period only where the ConfigMap config-features enables them (kubernetes.podspec-init-containers and others), and refuses the Service elsewhere"
}

func tellVolcano(t *template, f *jobIdentity) {
	task := t.up(1)
	f.role = task.Get("name").Text()
	f.uid = annotationSource(volcanoGroup)
	replicas := number(task, "replicas", 1)
	if replicas == 1 {
		return
	}
	f.count = strconv.Itoa(replicas)
	if t.object.root.Get("spec", "plugins", "env") == nil {
		f.caution = "the pods get their index from Volcano's plugin env: add plugins: {env: []} to the job; otherwise they exit with code 78"
	}
}

func tellFramework(t *template, f *jobIdentity) {
	role := t.up(2)
	f.role = role.Get("name").Text()
	f.job, f.uid, f.attempt = annotationSource(frameworkName), annotationSource(frameworkUID), annotationSource(frameworkTries)
	if n := number(role, "taskNumber", 1); n > 1 {
		f.count, f.index = strconv.Itoa(n), annotationSource(frameworkIndex)
	}
}
