package jobspec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// onePlan requests one input. Every template without a plan gets it.
const onePlan = `apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: x}
spec:
  inputs: [{name: train, source: "s3://b/train/", path: /data}]
`

// podOf is the spec of a pod template, on one line.
const podOf = `{spec: {containers: [{name: main, image: x}]}}`

// kinds has one object of each known kind, and one of each form of unknown kind. Each is followed
// by the variables from which its pods derive their index, by pod template.
var kinds = []struct {
	text string
	want string
}{
	{`{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: main, image: x}]}}`, `: JOB=x`},
	{`{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {replicas: 3, selector: {}, template: ` + podOf + `}}`, `spec.template: JOB=x`},
	{`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: x}, spec: {replicas: 3, selector: {}, serviceName: x, template: ` + podOf + `}}`, `spec.template: JOB=x`},
	{`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: x}, spec: {selector: {}, template: ` + podOf + `}}`, `spec.template: JOB=x`},
	{`{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {template: ` + podOf + `}}`, `spec.template: JOB=<job-name>`},
	{
		`{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {completions: 4, completionMode: Indexed, backoffLimitPerIndex: 1, template: ` + podOf + `}}`,
		`spec.template: JOB=<job-name> ATTEMPT=<job-index-failure-count> COUNT=4`,
	},
	{
		`{apiVersion: batch/v1, kind: CronJob, metadata: {name: x}, spec: {schedule: "* * * * *", jobTemplate: {spec: {completions: 2, completionMode: Indexed, template: ` + podOf + `}}}}`,
		`spec.jobTemplate.spec.template: JOB=<job-name> COUNT=2`,
	},
	{
		`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: x}, spec: {replicatedJobs: [
		 {name: driver, template: {spec: {template: ` + podOf + `}}},
		 {name: worker, replicas: 2, template: {spec: {completions: 3, parallelism: 3, template: ` + podOf + `}}},
		 {name: ps, replicas: 2, template: {spec: {template: ` + podOf + `}}}]}}`,
		`spec.replicatedJobs[0].template.spec.template: JOB=<jobset-name> ROLE=driver ATTEMPT=<restart-attempt> COUNT=1
		 spec.replicatedJobs[1].template.spec.template: JOB=<jobset-name> ROLE=worker ATTEMPT=<restart-attempt> JOB_INDEX=<job-index> POD_INDEX=<job-completion-index> INDEX=$(STAGER_JOB_INDEX)*3+$(STAGER_POD_INDEX) COUNT=6
		 spec.replicatedJobs[2].template.spec.template: JOB=<jobset-name> ROLE=ps ATTEMPT=<restart-attempt> INDEX=<job-index> COUNT=2`,
	},
	{
		`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {pytorchReplicaSpecs: {Master: {replicas: 1, template: ` + podOf + `}, Worker: {replicas: 3, template: ` + podOf + `}}}}`,
		`spec.pytorchReplicaSpecs.Master.template: JOB=<job-name> ROLE=master INDEX=<replica-index> COUNT=4
		 spec.pytorchReplicaSpecs.Worker.template: JOB=<job-name> ROLE=worker POD_INDEX=<replica-index> INDEX=$(STAGER_POD_INDEX)+1 COUNT=4`,
	},
	{
		`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {elasticPolicy: {}, pytorchReplicaSpecs: {Worker: {replicas: 3, template: ` + podOf + `}}}}`,
		`spec.pytorchReplicaSpecs.Worker.template: JOB=<job-name> ROLE=worker`,
	},
	{
		`{apiVersion: kubeflow.org/v1, kind: TFJob, metadata: {name: x}, spec: {tfReplicaSpecs: {PS: {replicas: 2, template: ` + podOf + `}, Worker: {replicas: 2, template: ` + podOf + `}}}}`,
		`spec.tfReplicaSpecs.PS.template: JOB=<job-name> ROLE=ps
		 spec.tfReplicaSpecs.Worker.template: JOB=<job-name> ROLE=worker INDEX=<replica-index> COUNT=2`,
	},
	{
		`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: x}, spec: {mpiReplicaSpecs: {Launcher: {replicas: 1, template: ` + podOf + `}, Worker: {replicas: 2, template: ` + podOf + `}}}}`,
		`spec.mpiReplicaSpecs.Launcher.template: JOB=<job-name> ROLE=launcher
		 spec.mpiReplicaSpecs.Worker.template: JOB=<job-name> ROLE=worker INDEX=<replica-index> COUNT=2`,
	},
	{
		`{apiVersion: kubeflow.org/v1, kind: XGBoostJob, metadata: {name: x}, spec: {xgbReplicaSpecs: {Master: {replicas: 1, template: ` + podOf + `}}}}`,
		`spec.xgbReplicaSpecs.Master.template: JOB=<job-name> ROLE=master`,
	},
	{
		`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: ClusterTrainingRuntime, metadata: {name: x}, spec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: ` + podOf + `}}}]}}}}`,
		`spec.template.spec.replicatedJobs[0].template.spec.template: JOB=<jobset-name> ROLE=node ATTEMPT=<restart-attempt>`,
	},
	{
		`{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: x}, spec: {headGroupSpec: {template: ` + podOf + `}, workerGroupSpecs: [{groupName: gpu, template: ` + podOf + `}]}}`,
		`spec.headGroupSpec.template: JOB=x ROLE=head
		 spec.workerGroupSpecs[0].template: JOB=x ROLE=gpu`,
	},
	{
		`{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: x}, spec: {rayClusterSpec: {headGroupSpec: {template: ` + podOf + `}, workerGroupSpecs: [{groupName: gpu, template: ` + podOf + `}]}}}`,
		`spec.rayClusterSpec.headGroupSpec.template: JOB=x ROLE=head
		 spec.rayClusterSpec.workerGroupSpecs[0].template: JOB=x ROLE=gpu`,
	},
	{
		`{apiVersion: ray.io/v1, kind: RayService, metadata: {name: x}, spec: {rayClusterConfig: {headGroupSpec: {template: ` + podOf + `}}}}`,
		`spec.rayClusterConfig.headGroupSpec.template: JOB=x ROLE=head`,
	},
	{
		`{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: x}, spec: {plugins: {env: []}, tasks: [{name: worker, replicas: 3, template: ` + podOf + `}]}}`,
		`spec.tasks[0].template: JOB=x ROLE=worker COUNT=3`,
	},
	{
		`{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: x}, spec: {leaderWorkerTemplate: {size: 2, leaderTemplate: ` + podOf + `, workerTemplate: ` + podOf + `}}}`,
		`spec.leaderWorkerTemplate.leaderTemplate: JOB=x
		 spec.leaderWorkerTemplate.workerTemplate: JOB=x`,
	},
	{
		`{apiVersion: frameworkcontroller.microsoft.com/v1, kind: Framework, metadata: {name: x}, spec: {taskRoles: [{name: worker, taskNumber: 2, task: {pod: ` + podOf + `}}]}}`,
		`spec.taskRoles[0].task.pod: JOB=<FC_FRAMEWORK_NAME> ROLE=worker ATTEMPT=<FC_FRAMEWORK_ATTEMPT_ID> INDEX=<FC_TASK_INDEX> COUNT=2`,
	},
	{
		`{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: x}, spec: {rayClusterSpec: {headGroupSpec: {template: ` + podOf + `}}, submitterPodTemplate: ` + podOf + `}}`,
		`spec.rayClusterSpec.headGroupSpec.template: JOB=x ROLE=head
		 spec.submitterPodTemplate: JOB=x`,
	},
	{
		`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, metadata: {name: x}, spec: {driver: {cores: 1, template: ` + podOf + `}, executor: {instances: 2, template: ` + podOf + `}}}`,
		`spec.driver.template: JOB=x ROLE=driver
		 spec.executor.template: JOB=x ROLE=executor`,
	},
	{
		`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: ScheduledSparkApplication, metadata: {name: x}, spec: {template: {driver: {template: ` + podOf + `}}}}`,
		`spec.template.driver.template: JOB=x ROLE=driver`,
	},
	{
		`{apiVersion: serving.kserve.io/v1beta1, kind: InferenceService, metadata: {name: x}, spec: {predictor: {containers: [{name: kserve-container, image: y}]}, transformer: {containers: [{name: t, image: z}]}}}`,
		`spec.predictor: JOB=x`,
	},
	{
		`{apiVersion: serving.kserve.io/v1alpha1, kind: LLMInferenceService, metadata: {name: x}, spec: {model: {uri: "hf://a/b"}, template: {containers: [{name: main, image: y}]}, worker: {containers: [{name: main, image: y}]}}}`,
		`spec.template: JOB=x`,
	},
	{
		`{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: x}, spec: {template: ` + podOf + `}}`,
		`spec.template: JOB=x`,
	},
	{
		`{apiVersion: serving.kserve.io/v1beta1, kind: InferenceService, metadata: {name: x}, spec: {predictor: {model: {modelFormat: {name: sklearn}}}}}`,
		`left alone: its container comes from a ServingRuntime; write it into spec.predictor.containers`,
	},
	{
		`{apiVersion: serving.kserve.io/v1alpha1, kind: ServingRuntime, metadata: {name: x}, spec: {containers: [{name: kserve-container, image: y}]}}`,
		`left alone: it supports no init containers; inject an InferenceService that has its container in spec.predictor.containers`,
	},
	{
		`{apiVersion: serving.kserve.io/v1alpha1, kind: ClusterServingRuntime, metadata: {name: x}, spec: {containers: [{name: kserve-container, image: y}], workerSpec: {spec: {containers: [{name: a}]}}}}`,
		`left alone: it supports no init containers; inject an InferenceService that has its container in spec.predictor.containers`,
	},
	{
		`{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: x}, spec: {podTemplateOverrides: [{targetJobs: [{name: node}], spec: {containers: [{name: node}]}}], runtimePatches: [{manager: a, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: ` + podOf + `}}}]}}}}]}}`,
		`left alone: its pods come from its runtime, and it cannot add containers to them; inject the TrainingRuntime or ClusterTrainingRuntime`,
	},
	{
		`{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: x}, spec: {taskSpec: {steps: [{name: a, image: y}]}}}`,
		`left alone: its steps are containers that Tekton runs one after another, and a sidecar of stager would not end with them; add steps that run stager prefetch and stager push`,
	},
	{
		`{apiVersion: argoproj.io/v1alpha1, kind: Workflow, metadata: {name: x}, spec: {templates: [{name: a, container: {image: y}}]}}`,
		`left alone: Argo creates its pods; the webhook injects the pods of templates whose metadata has the annotations and the label stager.dev/inject: "true"`,
	},
	{
		`{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication, metadata: {name: x}, spec: {driver: {cores: 1}, executor: {instances: 2}}}`,
		`left alone: it has no pod template; write one with the container spark-kubernetes-driver as spec.driver.template, and one with spark-kubernetes-executor as spec.executor.template`,
	},
	{
		`{apiVersion: monitoring.coreos.com/v1, kind: Prometheus, metadata: {name: x}, spec: {containers: [{name: prometheus}]}}`,
		`left alone: the kind Prometheus is unknown, so the containers in its spec may not belong to a pod; if they do, use --path spec`,
	},
	{`{apiVersion: example.com/v1, kind: Surprise, metadata: {name: x}, spec: {deep: [{down: ` + podOf + `}]}}`, `spec.deep[0].down: JOB=x`},
	{`{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: []}}`, `left alone: it has no pod template`},
	{`{apiVersion: example.com/v1, kind: Surprise, metadata: {name: x}, spec: {containers: 3}}`, `left alone: it has no pod template`},
	{
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: x}, spec: {properties: {spec: {properties: {containers: {items: {}}}}}}}`,
		`left alone: it has no pod template`,
	},
}

func TestKinds(t *testing.T) {
	opts := Options{Plan: []byte(onePlan)}
	for _, tt := range kinds {
		result, err := Inject([]byte(tt.text), opts)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		var lines []string
		for _, line := range strings.Split(tt.want, "\n") {
			lines = append(lines, strings.TrimSpace(line))
		}
		if diff := cmp.Diff(lines, places(t, result)); diff != "" {
			t.Errorf("%s: %s", tt.text, diff)
		}
		holds(t, []byte(tt.text), opts)
		decodes(t, result.Output)
	}
}

// --path selects pod templates where the structure is ambiguous.
func TestPath(t *testing.T) {
	file := `{apiVersion: example.com/v1, kind: Surprise, metadata: {name: x}, spec: {a: [{t: ` + podOf + `}, {t: ` + podOf + `}], b: {t: ` + podOf + `}}, body: {containers: [{name: main}]}, list: [{p: {containers: [{name: main}]}}]}`
	for path, want := range map[string]string{
		"":              "spec.a[0].t spec.a[1].t spec.b.t",
		"spec.a[].t":    "spec.a[0].t spec.a[1].t",
		"spec.a[1].t":   "spec.a[1].t",
		"spec.b.t":      "spec.b.t",
		"spec.b.x":      "",
		"spec.b":        "",
		"spec.b.t.spec": "spec.b.t",
		"body":          "body",
		"list[].p":      "list[0].p",
	} {
		opts := Options{Plan: []byte(onePlan), Path: path}
		result, err := Inject([]byte(file), opts)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range result.Objects {
			if o.Action == Injected {
				got = append(got, o.Template)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("--path %q injects %v, want %s", path, got, want)
		}
		holds(t, []byte(file), opts)
	}
}

// A pod spec without a pod template is found again without --path, for updates and for Uninject.
// Several specs that share their annotations are refused.
func TestPathIsRecorded(t *testing.T) {
	file := []byte("apiVersion: example.com/v1\nkind: Surprise\nmetadata:\n  name: x\nspec:\n  a:\n  - pod:\n      containers:\n      - name: main\n        command: [a]\n  b:\n    containers:\n    - name: main\n")
	opts := Options{Plan: []byte(onePlan), Path: "spec.a[0].pod"}
	once, err := Inject(file, opts)
	if err != nil {
		t.Fatal(err)
	}
	opts.Path = ""
	if again, err := Inject(once.Output, opts); err != nil || string(again.Output) != string(once.Output) {
		t.Errorf("injected again without --path it is %v, %s, want\n%s", err, again.Output, once.Output)
	}
	if back, err := Uninject(once.Output); err != nil || string(back.Output) != string(file) {
		t.Errorf("uninjected it is %v, %s, want\n%s", err, back.Output, file)
	}
	opts.Path = "spec.a[].pod"
	two := strings.Replace(string(file), "  b:\n", "  - pod: {containers: [{name: main}]}\n  b:\n", 1)
	want := "spec.a[0].pod and spec.a[1].pod have no pod template of their own, and annotations of Surprise cannot distinguish them; select one with --path"
	if _, err := Inject([]byte(two), opts); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("two that share annotations: got %v, want %s", err, want)
	}
}

// A kind that cannot be injected causes a warning if it requests data.
func TestPassedKindsAreWarnedOf(t *testing.T) {
	for _, tt := range []struct {
		annotations string
		opts        Options
		want        string
	}{
		{"", Options{}, "[][]"},
		{"", Options{Plan: []byte(onePlan)}, "[it is not injected: it supports no init containers; inject an InferenceService that has its container in spec.predictor.containers][]"},
		{train, Options{}, "[][stager.dev/in.train has no effect on this ServingRuntime: it supports no init containers; inject an InferenceService that has its container in spec.predictor.containers]"},
	} {
		file := `{apiVersion: serving.kserve.io/v1alpha1, kind: ServingRuntime, metadata: {name: x, annotations: {` + tt.annotations + `}}, spec: {containers: [{name: kserve-container, image: y}]}}`
		result, err := Inject([]byte(file), tt.opts)
		if err != nil || string(result.Output) != file {
			t.Fatalf("got %v, %+v, want nothing changed", err, result)
		}
		if got := fmt.Sprint(result.Objects[0].Warnings, result.Objects[0].Unmatched); strings.ReplaceAll(got, "] [", "][") != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

// places returns the index variables of each template's pods. A field is represented by the end of
// its name.
func places(t *testing.T, r *Result) (lines []string) {
	t.Helper()
	d := yamledit.Split(r.Output)[0]
	if err := yamledit.Parse(d); err != nil {
		t.Fatal(err)
	}
	for _, o := range objectsIn(d) {
		o.findTemplates("")
		for _, tpl := range o.templates {
			line := tpl.Path() + ":"
			for _, v := range tpl.pod().Get("initContainers").Item("name", ContainerPrefetch).Get("env").All() {
				name := strings.TrimPrefix(v.Get("name").Text(), "STAGER_")
				if name == "PLAN_YAML" || name == "NAMESPACE" || name == "POD" || name == "SOCKET" {
					continue
				}
				value := v.Get("value").Text()
				if field := v.Get("valueFrom", "fieldRef", "fieldPath").Text(); field != "" {
					field = strings.TrimSuffix(field, "']")
					value = "<" + field[strings.LastIndexAny(field, "'/")+1:] + ">"
				}
				line += fmt.Sprintf(" %s=%s", name, value)
			}
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		for _, o := range r.Objects {
			lines = append(lines, fmt.Sprintf("%s: %s", o.Action, o.Reason))
		}
	}
	return lines
}
