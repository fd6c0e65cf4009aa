package pai

import (
	"fmt"
	"strings"
	"testing"
)

// second is a job of the second format with what such jobs have.
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
    extraContainerOptions: {shmMB: 512}
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

// None of 77 public jobs of this format was converted: "this is not JSON".
func TestJobOfTheSecondFormat(t *testing.T) {
	result := convert(t, second, Options{User: "bob", GPUTypes: map[string]string{"K80": "gpu=k80"}})
	decodes(t, result.Output)
	out := string(result.Output)
	for _, want := range []string{
		"kind: JobSet", "maxRestarts: 1", "registry.example/tf:2", "busybox", "kubernetes.io/dockerconfigjson", "kueue.x-k8s.io/queue-name: vc1",
		"before\n", "fetch https://data.example/b\n", "train --epochs 3 --out /models/lenet-v3\n", "after\n",
		"sizeLimit: 512Mi", "nvidia.com/gpu: 1", "completions: 2", "succeededCount: 2", "gpu: k80",
		"PAI_PORT_LIST_worker_1_grpc", "PAI_HOST_IP_ps_server_0", "PAI_TASK_ROLE_TASK_COUNT_worker",
	} {
		if !strings.Contains(strings.ReplaceAll(out, "\\n", "\n"), want) && !strings.Contains(out, strings.TrimSpace(want)) {
			t.Errorf("the manifests have no %q:\n%s", want, out)
		}
	}
	warnings := strings.Join(result.Warnings, "\n")
	for _, want := range []string{"taskRetryCount 2 has no equivalent", "the runtime plugin ssh is not carried out", "gangAllocation"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("the warnings have no %q: %s", want, warnings)
		}
	}
	if strings.Contains(out, "<%") {
		t.Errorf("a reference is left in the manifests:\n%s", out)
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
		{"cyclic reference", replaced("base: lenet", "base: <% $parameters.model.name %>"), "one of them leads back to itself"},
		{"a list as a text", replaced("$data.uri[1]", "$data.uri"), "is a list or a mapping"},
		{"no such item", replaced("$data.uri[1]", "$data.uri[2]"), "<% $data.uri[2] %> is not defined"},
		{"data that the role does not name", replaced("    data: digits\n", ""), "<% $data.uri[1] %> is not defined"},
		{"another beginning", replaced("$data.uri[1]", "$job.name"), "references begin with $parameters"},
		{"no such image", replaced("dockerImage: tf", "dockerImage: tg"), `dockerImage is "tg", and there is no prerequisite of type dockerimage with this name`},
		{"two images of a name", replaced("name: plain", "name: tf"), `two prerequisites of type dockerimage are called "tf"`},
		{"no such deployment", replaced("deployment: prod", "deployment: dev"), `the deployment "dev" is not among deployments`},
		{"no resources", replaced("    resourcePerInstance: {cpu: 1, memoryMB: 2048, gpu: 0}\n", ""), "task role ps-server has no resourcePerInstance"},
		{"no commands", replaced("    commands: [sleep 1]\n", ""), "task role ps-server has no commands"},
		{"a text as a number", replaced("instances: 2", "instances: two"), `line 22, column 16: task role worker: instances is "two"; write a whole number`},
		{"no name", replaced("name: mnist_train\n", ""), "the job has no name"},
		{"no task roles", "protocolVersion: 2\nname: x\n", "taskRoles is missing or empty"},
		{"a tab", replaced("type: job", "\ttype: job"), "this is not YAML"},
		{"a template", "protocolVersion: 2\nname: {{ name }}\n", "line 2, column 7: this is the template of another program"},
		{"a list", "- a\n# \nprotocolVersion: 2", "this is not YAML"},
		{"5 MB", "protocolVersion: 2\n" + strings.Repeat("#", 5<<20), "a job has 3145728 at most"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if _, err := Convert([]byte(tt.file), Options{}); !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}
