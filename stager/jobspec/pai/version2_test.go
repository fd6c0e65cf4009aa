package pai

import (
	"fmt"
	"strings"
	"testing"
)

// second is a job of the second format with the usual fields.
const second = `protocolVersion: 2
name: mnist_train
type: job
jobRetryCount: 1
parameters:
  epochs: 3
  model: {dir: /models, name: "<% $parameters.base %>-v<% $parameters.epochs %>"}
  base: lenet
secrets: {password: s3cret}
prerequisites:
  - {protocolVersion: 2, name: tf, type: dockerimage, uri: "registry.example/tf:2", auth: {username: bob, password: <% $secrets.password %>, registryuri: registry.example}}
  - {name: plain, type: dockerimage, uri: busybox}
  - {name: digits, type: data, uri: ["https://data.example/a", "https://data.example/b"]}
taskRoles:
  ps-server:
    instances: 1
    completion: {minFailedInstances: 1, minSucceededInstances: -1}
    dockerImage: plain
    resourcePerInstance: {cpu: 1, memoryMB: 2048, gpu: 0}
    commands: [sleep 1]
  worker:
    instances: 2
    completion: {minFailedInstances: 1, minSucceededInstances: 2}
    taskRetryCount: 2
    dockerImage: tf
    data: digits
    extraContainerOptions: {shmMB: 640}
    resourcePerInstance: {cpu: 4, memoryMB: 8192, gpu: 1, ports: {grpc: 2}}
    commands:
      - fetch <% $data.uri[1] %>
      - train --epochs <% $parameters.epochs %> --out <% $parameters.model.dir %>/<% $parameters.model.name %>
      - curl http://$PAI_HOST_IP_ps_server_0:$PAI_PORT_LIST_worker_0_grpc
deployments:
  - name: prod
    taskRoles: {worker: {preCommands: [before], postCommands: [after]}}
defaults: {virtualCluster: vc1, deployment: prod}
extras:
  gangAllocation: true
  com.microsoft.pai.runtimeplugin: [{plugin: ssh, parameters: {jobssh: true}}]
  hivedScheduler: {taskRoles: {worker: {gpuType: K80}}}
`

// None of 77 public jobs in this format was converted: "this is not JSON".
func TestJobOfTheSecondFormat(t *testing.T) {
	result := convert(t, second, Options{User: "bob", GPUTypes: map[string]string{"K80": "gpu=k80"}})
	decodes(t, result.Output)
	out := string(result.Output)
	for _, want := range []string{
		"kind: JobSet", "maxRestarts: 1", "registry.example/tf:2", "busybox", "kubernetes.io/dockerconfigjson", "kueue.x-k8s.io/queue-name: vc1",
		"set -o errexit -o nounset -o pipefail\n",
		"before\n", "fetch https://data.example/b\n", "train --epochs 3 --out /models/lenet-v3\n", "after\n",
		"sizeLimit: 640Mi", "sizeLimit: 512Mi", "nvidia.com/gpu: 1", "completions: 2 # instances", "targetReplicatedJobs: [worker]", "gpu: k80",
		"PAI_PORT_LIST_worker_1_grpc", "PAI_HOST_IP_ps_server_0", "PAI_TASK_ROLE_TASK_COUNT_worker", "PAI_worker_1_grpc_PORT",
		`PAI_JOB_NAME, value: bob~mnist_train`, `PAI_TASK_ROLE_INSTANCES, value: "ps-server:0,worker:0,worker:1"`,
		`PAI_RESOURCE_worker, value: "1,4,8192,640"`, `PAI_RESOURCE_ps_server, value: "0,1,2048,0"`,
		`PAI_MIN_SUCCEEDED_TASK_COUNT_ps_server, value: "-1"`, `PAI_MIN_FAILED_TASK_COUNT_worker, value: "1"`,
		`PAI_CONTAINER_HOST_PORT_LIST, value: "grpc:20000,20001;http:20002;ssh:20003;"`, `NVIDIA_VISIBLE_DEVICES, value: none`,
	} {
		if !strings.Contains(strings.ReplaceAll(out, "\\n", "\n"), want) && !strings.Contains(out, strings.TrimSpace(want)) {
			t.Errorf("the manifests have no %q:\n%s", want, out)
		}
	}
	warnings := strings.Join(result.Warnings, "\n")
	for _, want := range []string{"taskRetryCount 2 has no effect, as in OpenPAI", "the runtime plugin ssh is not supported", "the job ends and its other tasks are stopped when all tasks of this role have succeeded"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("the warnings have no %q: %s", want, warnings)
		}
	}
	if strings.Contains(out, "<%") {
		t.Errorf("a reference is left in the manifests:\n%s", out)
	}
}

// single returns a job of the second format with one role, with additional fields in the job and in
// the role.
func single(inJob, inRole string) string {
	return "protocolVersion: 2\nname: j\ntype: job\n" + inJob + `
prerequisites:
  - {name: image, type: dockerimage, uri: busybox}
  - {name: tools, type: script, plugin: com.microsoft.pai.runtimeplugin.cmd, callbacks: [{event: taskStarts, commands: [install]}, {event: taskSucceeds, commands: [clean]}]}
taskRoles:
  w:
    instances: 3
    dockerImage: image
    resourcePerInstance: {cpu: 1, memoryMB: 1024, gpu: 0}
` + inRole
}

// script returns the script of the only task role, from its pod.
func script(t *testing.T, file string, opts Options) string {
	t.Helper()
	job := decodes(t, convert(t, file, opts).Output).job
	command := job.Spec.Template.Spec.Containers[0].Command
	return command[len(command)-1]
}

// A role runs the commands of its prerequisites and plugins before and after its own.
func TestPluginsOfTheSecondFormat(t *testing.T) {
	plugins := `extras:
  com.microsoft.pai.runtimeplugin:
    - {plugin: cmd, taskroles: [w], failurePolicy: ignore, parameters: {preCommands: ["echo <% $parameters.x %>"], postCommands: [tell]}}
    - {plugin: cmd, taskroles: [other], parameters: {preCommands: [never]}}
    - {plugin: tensorboard, parameters: {port: 6006, logdir: {a: "/logs/it's", b: /b}}}
parameters: {x: 7}
`
	got := script(t, single(plugins, "    prerequisites: [tools]\n    commands: [\"  run  \", more]\n"), Options{Queue: NoQueue})
	want := `set -o errexit -o nounset -o pipefail
( set +o nounset +o pipefail
install
)
( set +o errexit
set +o nounset +o pipefail
echo 7
true )
if [ "$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX" = 0 ]; then
  command -v tensorboard >/dev/null || pip install tensorboard
  tensorboard '--logdir_spec=a:/logs/it'\''s,b:/b' --port=6006 --bind_all >&2 &
fi
run
more
( set +o errexit
set +o nounset +o pipefail
tell
true )
( set +o nounset +o pipefail
clean
)`
	if got != want {
		t.Errorf("got the script\n%s\nwant\n%s", got, want)
	}
}

// Kubernetes notifies nobody. The warning names the states for which the job asked, and the
// annotation keeps the setting.
func TestNotificationsOfTheSecondFormat(t *testing.T) {
	const subject = "jobStatusChangeNotification"
	for _, tt := range []struct{ setting, want string }{
		{"{succeeded: true, failed: true, running: false}", subject + " has no equivalent, so no notification is sent when the job is succeeded or failed; use kubectl wait, or let your monitoring watch the job"},
		{"{running: true}", subject + " has no equivalent, so no notification is sent when the job is running; use kubectl wait, or let your monitoring watch the job"},
		{"{succeeded: false}", ""},
		{"{}", ""},
		{"null", ""},
	} {
		result := convert(t, single("extras: {"+subject+": "+tt.setting+"}\n", "    commands: [run]\n"), Options{Queue: NoQueue})
		got := ""
		for _, w := range result.Warnings {
			if strings.Contains(w, subject) {
				got += w
			}
		}
		if got != tt.want {
			t.Errorf("%s: got the warning %q, want %q", tt.setting, got, tt.want)
		}
		if !strings.Contains(string(result.Output), "pai.stager.dev/extras: ") || !strings.Contains(string(result.Output), subject) {
			t.Errorf("%s: the annotation does not have the setting:\n%s", tt.setting, result.Output)
		}
	}
	_, err := Convert([]byte(single("extras: {"+subject+": often}\n", "    commands: [run]\n")), Options{})
	if want := subject + " is not a mapping"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A storage becomes the claim of the same name, or a URL is staged to its directory.
func TestStoragesOfTheSecondFormat(t *testing.T) {
	older := single("extras: {com.microsoft.pai.runtimeplugin: [{plugin: teamwise_storage, parameters: {storageConfigNames: [Shared_Data]}}]}\n", "    commands: [run]\n")
	job := decodes(t, convert(t, older, Options{}).Output).job
	found := false
	for _, v := range job.Spec.Template.Spec.Volumes {
		found = found || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "Shared_Data"
	}
	if !found {
		t.Errorf("got the volumes %v, want the claim Shared_Data", job.Spec.Template.Spec.Volumes)
	}
	newer := single("extras: {storages: [{name: data, mountPath: /data, readOnly: true}]}\n", "    commands: [run]\n")
	out := string(convert(t, newer, Options{Storages: map[string]string{"data": "s3://bucket/data"}}).Output)
	for _, want := range []string{"source: s3://bucket/data/", "path: /data"} {
		if !strings.Contains(out, want) {
			t.Errorf("the manifests have no %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "persistentVolumeClaim") {
		t.Errorf("the claim is mounted beside what is staged:\n%s", out)
	}
}

// A command that contains the value of a secret is stored only in a Secret.
func TestSecretsOfTheSecondFormat(t *testing.T) {
	result := convert(t, single("secrets: {token: hunter2}\n", "    commands: [\"login --token '<% $secrets.token %>'\"]\n"), Options{})
	if strings.Contains(string(result.Output), "hunter2") {
		t.Errorf("the secret stands in the manifests:\n%s", result.Output)
	}
	all := decodes(t, result.Output)
	if got := string(all.secret.Data["w"]); !strings.Contains(got, "login --token 'hunter2'") {
		t.Errorf("the Secret has %q, want the script", got)
	}
	command := all.job.Spec.Template.Spec.Containers[0].Command
	if got := command[len(command)-1]; got != "/pai/commands/w" {
		t.Errorf("the command ends in %q, want the script of the Secret", got)
	}
	task, err := Local([]byte(single("secrets: {token: hunter2}\n", "    commands: [\"login <% $secrets.token %>\"]\n")), "w", 0, "/work", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(strings.Join(task.Command, " "), "hunter2") {
		t.Errorf("the command is %q, which has the secret", task.Command)
	}
}

// Compares OpenPAI's counts with those of the Job. taskRetryCount applies only without gang
// allocation. A missing, null or zero count has OpenPAI's default.
func TestCompletionOfTheSecondFormat(t *testing.T) {
	for _, tt := range []struct{ name, job, role, want string }{
		{"default", "", "", "backoffLimit 0"},
		{"null", "", "completion: {minFailedInstances: null, minSucceededInstances: 0}", "backoffLimit 0"},
		{"two may fail", "", "completion: {minFailedInstances: 3}", "backoffLimitPerIndex 0, maxFailedIndexes 2"},
		{"one is enough", "", "completion: {minFailedInstances: 1, minSucceededInstances: 1}", "backoffLimit 0, succeededCount 1"},
		{"failures do not count", "", "completion: {minFailedInstances: -1}", "backoffLimit 0, exit code ignored"},
		{"failures do not count, one is enough", "", "completion: {minFailedInstances: -1, minSucceededInstances: 1}", "backoffLimitPerIndex 0, succeededCount 1"},
		{"tries without effect", "", "taskRetryCount: 2", "backoffLimit 0"},
		{"tries", "extras: {gangAllocation: false}", "taskRetryCount: 2", "backoffLimitPerIndex 2, maxFailedIndexes 0"},
		{"tries for ever", "extras: {gangAllocation: false}", "taskRetryCount: -1", "backoffLimitPerIndex 2147483647, maxFailedIndexes 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := single(tt.job, "    "+tt.role+"\n    commands: [run]\n")
			job := decodes(t, convert(t, file, Options{Queue: NoQueue}).Output).job
			var got []string
			count := func(what string, n *int32) {
				if n != nil {
					got = append(got, fmt.Sprintf("%s %d", what, *n))
				}
			}
			count("backoffLimit", job.Spec.BackoffLimit)
			count("backoffLimitPerIndex", job.Spec.BackoffLimitPerIndex)
			count("maxFailedIndexes", job.Spec.MaxFailedIndexes)
			if p := job.Spec.SuccessPolicy; p != nil {
				count("succeededCount", p.Rules[0].SucceededCount)
			}
			if strings.Contains(script(t, file, Options{Queue: NoQueue}), "which is ignored") {
				got = append(got, "exit code ignored")
			}
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("got %s, want %s", strings.Join(got, ", "), tt.want)
			}
		})
	}
}

// A job of the second format may be JSON, because JSON is YAML. Comments do not change offsets.
func TestJobOfTheSecondFormatAsJSON(t *testing.T) {
	file := `// a job
{"name": "j", "type": "job", "protocolVersion": "2", // of the second format
  "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "busybox"}],
  "taskRoles": {"w": {"dockerImage": "image", "resourcePerInstance": {"cpu": 1, "memoryMB": 1024, "gpu": 0}, "commands": ["echo /* \"$PAI_TASK_INDEX\" */ // <% $parameters.x %>"]}},
  "parameters": {"x": "\u00e9t\u00e9"},
}`
	if got := script(t, file, Options{}); !strings.HasSuffix(got, `echo /* "$PAI_TASK_INDEX" */ // été`) {
		t.Errorf("got the script %q, want the command of the job", got)
	}
	_, err := Convert([]byte(strings.Replace(file, "parameters.x", "parameters.y", 1)), Options{})
	if want := "line 4, column 123: <% $parameters.y %> is not defined"; !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestJobOfTheSecondFormatRunsHere(t *testing.T) {
	task, err := Local([]byte(second), "worker", 1, "/work", Options{User: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(task.Command, " "); !strings.Contains(got, "train --epochs 3") {
		t.Errorf("the command is %q, want the role's", got)
	}
}

func TestFaultsOfTheSecondFormat(t *testing.T) {
	replaced := func(old, with string) string {
		if !strings.Contains(second, old) {
			t.Fatalf("the job has no %q", old)
		}
		return strings.Replace(second, old, with, 1)
	}
	for _, tt := range []struct{ what, file, want string }{
		{"unknown parameter", replaced("$parameters.epochs %> --out", "$parameters.epoch %> --out"), "line 31, column 9: <% $parameters.epoch %> is not defined"},
		{"missing secret", replaced("{password: s3cret}", "{}"), "line 11, column 117: <% $secrets.password %> is not defined"},
		{"cyclic reference", replaced("base: lenet", "base: <% $parameters.model.name %>"), "remove the cycle"},
		{"a list as a text", replaced("$data.uri[1]", "$data.uri"), "is a list or a mapping"},
		{"no such item", replaced("$data.uri[1]", "$data.uri[2]"), "<% $data.uri[2] %> is not defined"},
		{"data that the role does not name", replaced("    data: digits\n", ""), "<% $data.uri[1] %> is not defined"},
		{"another beginning", replaced("$data.uri[1]", "$job.name"), "begin it with $parameters"},
		{"no such image", replaced("dockerImage: tf", "dockerImage: tg"), `dockerImage is "tg", but there is no prerequisite of type dockerimage with this name`},
		{"two images of a name", replaced("name: plain", "name: tf"), `two prerequisites of type dockerimage have the name "tf"; rename one`},
		{"no such deployment", replaced("deployment: prod", "deployment: dev"), `the deployment "dev" does not exist`},
		{"no resources", replaced("    resourcePerInstance: {cpu: 1, memoryMB: 2048, gpu: 0}\n", ""), "task role ps-server has no resourcePerInstance"},
		{"no commands", replaced("    commands: [sleep 1]\n", ""), "task role ps-server has no commands"},
		{"a text as a number", replaced("instances: 2", "instances: two"), `line 22, column 16: task role worker: instances is "two"; write a whole number`},
		{"two auths of one registry", replaced("uri: busybox}", "uri: busybox, auth: {username: eve, password: x, registryuri: registry.example}}"), "two images of one registry have different auths"},
		{"no such prerequisite", replaced("    data: digits\n", "    data: digits\n    prerequisites: [nothing]\n"), `there is no prerequisite with the name "nothing"`},
		{"no such event", replaced("{plugin: ssh, parameters: {jobssh: true}}", "{plugin: cmd, parameters: {callbacks: [{event: taskFails}]}}"), `unknown event "taskFails"`},
		{"a storage twice", replaced("gangAllocation: true", "storages: [{name: a}, {name: a}]"), "duplicate storage a or path /mnt/a"},
		{"a storage at no path", replaced("gangAllocation: true", "storages: [{name: a, mountPath: data}]"), `the storage a is mounted at "data"; write an absolute path`},
		{"no name", replaced("name: mnist_train\n", ""), "the job has no name"},
		{"no task roles", "protocolVersion: 2\nname: x\n", "taskRoles is missing or empty"},
		{"a tab", replaced("type: job", "\ttype: job"), "line 3, column 1: this line is indented with a tab"},
		{"a template", "protocolVersion: 2\nname: {{ name }}\n", "line 2, column 7: this is a template of another program"},
		{"a list", "- a\n# \nprotocolVersion: 2", "this is not YAML"},
		{"5 MB", "protocolVersion: 2\n" + strings.Repeat("#", 5<<20), "the limit is 3145728"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if _, err := Convert([]byte(tt.file), Options{}); !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// A misspelled field has no effect, so its user is warned of it, as in the first format.
func TestUnknownFieldsOfTheSecondFormat(t *testing.T) {
	file := strings.NewReplacer(
		"instances: 3\n", "instances: 3\n    instance: 2\n",
		"gpu: 0", "gpu: 0, gpus: 1",
		"\ntaskRoles:", "\ndefault: {deployment: x}\ntaskRoles:",
	).Replace(single("", "    completion: {minSucceeded: 1}\n    extraContainerOptions: {shm: 1}\n    commands: [run]\n")) +
		"extras:\n  ours: {anything: true}\n  com.microsoft.pai.runtimeplugin:\n    - {plugin: cmd, preCommands: [a]}\n"
	got := convert(t, file, Options{Queue: NoQueue}).Warnings
	for _, want := range []string{
		"the job: unknown field default", "task role w: unknown field instance", "task role w: resourcePerInstance: unknown field gpus",
		"task role w: completion: unknown field minSucceeded", "task role w: extraContainerOptions: unknown field shm",
		"com.microsoft.pai.runtimeplugin: unknown field preCommands",
	} {
		if !strings.Contains(strings.Join(got, "\n"), want+" is ignored") {
			t.Errorf("got %q, want %s", got, want)
		}
	}
	for name, known := range map[string]string{"second": second, "single": single("", "    commands: [run]\n")} {
		if got := strings.Join(convert(t, known, Options{Queue: NoQueue}).Warnings, "\n"); strings.Contains(got, "unknown field") {
			t.Errorf("%s: got %s, want all of its fields known", name, got)
		}
	}
}
