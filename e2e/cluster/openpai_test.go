package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stager-dev/stager/e2e/servers"
)

// serves and works are the commands of a server and of two workers, in either format. The
// workers look for the server by its variables and introduce themselves; the server saves
// what it was told, and what it knows of itself. Workers that are not answered try again.
const (
	serves = `out=%s; mkdir -p $out; env | grep ^PAI_ | sort >$out/server.env
port=${PAI_CONTAINER_HOST_rpc_PORT_LIST%%,*}; touch heard
until grep -q "worker 0 " heard && grep -q "worker 1 " heard; do echo ok | timeout 20 nc -l -p $port >>heard || true; done
sort -u heard >$out/heard; cat $out/heard $out/server.env`
	works = `i=$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX; sum=$(cat %s/* | wc -c)
until test "$(echo "worker $i of $PAI_TASK_ROLE_TASK_COUNT_worker had $sum bytes, its ports begin at $PAI_CONTAINER_HOST_http_PORT_LIST, $PAI_JOB_NAME" | timeout 20 nc -w 5 $PAI_HOST_IP_server_0 ${PAI_PORT_LIST_server_0_rpc%%,*})" = ok; do sleep 0.3; done`
)

// The same job of two task roles in both formats.
var (
	openPAI1 = `{ // two roles, with data and results
  "jobName": "old_job", "image": "trainer", "retryCount": 0,
  "dataDir": "s3://BUCKET/data", "outputDir": "s3://BUCKET/out",
  "taskRoles": [
    {"name": "server", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 400, "gpuNumber": 0, "shmMB": 16,
     "portList": [{"label": "rpc", "beginAt": 0, "portNumber": 2}], "command": ` + quoted(fmt.Sprintf(serves, "$PAI_OUTPUT_DIR")) + `},
    {"name": "worker", "taskNumber": 2, "cpuNumber": 1, "memoryMB": 400, "gpuNumber": 0, "shmMB": 16, "minSucceededTaskCount": 2,
     "command": ` + quoted(fmt.Sprintf(works, "$PAI_DATA_DIR")) + `},
  ],
}`
	openPAI2 = `protocolVersion: 2
name: new_job
type: job
jobRetryCount: 0
parameters: {results: /pai/output}
prerequisites:
  - {name: trainer, type: dockerimage, uri: trainer}
taskRoles:
  server:
    instances: 1
    completion: {minFailedInstances: 1}
    dockerImage: trainer
    extraContainerOptions: {shmMB: 16}
    resourcePerInstance: {cpu: 1, memoryMB: 400, gpu: 0, ports: {rpc: 2}}
    commands:
` + indent("      ", "- |\n"+indent("  ", fmt.Sprintf(serves, "<% $parameters.results %>"))) + `  worker:
    instances: 2
    completion: {minFailedInstances: 1, minSucceededInstances: 2}
    dockerImage: trainer
    extraContainerOptions: {shmMB: 16}
    resourcePerInstance: {cpu: 1, memoryMB: 400, gpu: 0}
    commands:
` + indent("      ", "- |\n"+indent("  ", fmt.Sprintf(works, "/mnt/data"))) + `extras:
  gangAllocation: false
  storages: [{name: data}]
`
)

func quoted(text string) string {
	b, _ := json.Marshal(text) // a string is one
	return string(b)
}

// runOpenPAI runs jobs of OpenPAI as they are converted, until all their tasks have ended.
func runOpenPAI(t *testing.T, c *cluster, s3 *servers.S3) {
	c.define(t)
	for _, tt := range []struct {
		name, job, user string
		flags           []string
		saves           bool
	}{
		{"openpai-v1", openPAI1, "old_job", []string{"--write-secret", secret, "--data-size", "8Mi"}, true},
		{"openpai-v2", openPAI2, "bob~new_job", []string{"--storage", "data=s3://openpai-v2/data", "--data-size", "8Mi"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, c, s3, tt.name, 1000, "a", "b", "c")
			args := append([]string{
				"pai", "convert", "-q", "--user", "bob", "--read-secret", secret, "--image", stagerImage, "--image-pull-policy", "Never",
				"--container-env", "AWS_ENDPOINT_URL_S3=" + s3.Endpoint, "--container-env", "AWS_REGION=" + s3.Region, "-",
			}, tt.flags...)
			manifest := c.stager(t, strings.ReplaceAll(tt.job, "BUCKET", j.bucket), args...)
			jobs := c.plays(t, manifest)
			for _, name := range jobs {
				each := &job{c: c, s3: s3, name: name}
				t.Cleanup(func() {
					if t.Failed() {
						each.tell(t)
					}
					_, _ = c.kubectl(context.Background(), "", "delete", "job", name, "--wait=false") // all ends anyway
				})
			}
			for _, name := range jobs {
				if condition, reason := (&job{c: c, name: name}).wait(t).end(); condition != "Complete" {
					t.Errorf("%s ended %s, %s, want Complete", name, condition, reason)
				}
			}
			said, err := c.kubectl(t.Context(), "", "logs", "-l", "job-name="+jobs[0], "-c", "main", "--tail=-1")
			if err != nil {
				t.Fatal(err)
			}
			// Beside what the server prints stand the reports of its shell, on a listener that timed
			// out, and of nc, on a worker that gave up before it was answered and asked again.
			var heard, env string
			for line := range strings.Lines(said) {
				switch {
				case strings.HasPrefix(line, "worker "):
					heard += line
				case strings.HasPrefix(line, "PAI_"):
					env += line
				}
			}
			want := ""
			for i := range 2 { // either has all of the data, as in OpenPAI
				want += fmt.Sprintf("worker %d of 2 had 3000 bytes, its ports begin at 20000, %s\n", i, tt.user)
			}
			if heard != want {
				t.Errorf("the server was told\n%s\nwant\n%s", heard, want)
			}
			if saved, err := j.stored("out/server/0/heard"); tt.saves && (err != nil || saved != want) {
				t.Errorf("the server saved %q, %v, want %q", saved, err, want)
			}
			for _, line := range []string{
				"PAI_JOB_NAME=" + tt.user, "PAI_USER_NAME=bob", "PAI_TASK_ROLE_COUNT=2", "PAI_TASK_ROLE_LIST=server,worker", "PAI_CURRENT_TASK_ROLE_NAME=server",
				"PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX=0", "PAI_CONTAINER_HOST_rpc_PORT_LIST=20000,20001", "PAI_PORT_LIST_server_0_rpc=20000,20001",
				"PAI_PORT_LIST_server_0_http=20002", "PAI_PORT_LIST_worker_1_ssh=20001", "PAI_RESOURCE_worker=0,1,400,16",
			} {
				if !strings.Contains("\n"+env, "\n"+line+"\n") {
					t.Errorf("the server's variables lack %s:\n%s", line, env)
				}
			}
		})
	}
}
