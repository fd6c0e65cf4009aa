package pai

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stager-dev/stager/stager/jobspec"
)

// Annotations with the original OpenPAI names.
const (
	notePrefix  = "pai.stager.dev/"
	noteJob     = notePrefix + "job-name"
	noteRole    = notePrefix + "role-name"
	noteCluster = notePrefix + "virtual-cluster"
	noteGPU     = notePrefix + "gpu-type"
	noteExtras  = notePrefix + "extras"
)

// queueLabel is the label that assigns a job to a Kueue queue.
const queueLabel = "kueue.x-k8s.io/queue-name"

// manifests returns the objects of the job before injection.
func (c *conversion) manifests() ([]byte, error) {
	var comments []string
	var docs []entries
	add := func(comment string, doc entries) {
		comments, docs = append(comments, comment), append(docs, doc)
	}
	if registry := c.registrySecret(); registry != nil {
		add("From "+c.field("authFile")+": the credentials of the image's registry.", registry)
	}
	if commands := c.commandSecret(); commands != nil {
		add("From secrets: the commands that contain the value of a secret.", commands)
	}
	head := entries{
		{key: "name", value: c.names.job, comment: changed(c.field("jobName"), c.name, c.names.job)},
		{key: "labels", value: c.queue()},
		{key: "annotations", value: c.notes()},
	}
	if c.set {
		add(c.title(), c.jobSet(head))
	} else {
		add("Gives each task a name in the cluster's DNS, under which the others find it.", c.service())
		add(c.title(), c.indexedJob(head))
	}
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return write(comments, docs)
}

func (c *conversion) title() string {
	return "Created by stager pai convert from the OpenPAI job " + c.name + "."
}

// changed returns a comment with the original name, or "" if the name is unchanged.
func changed(field, from, to string) string {
	if from == to {
		return ""
	}
	return field + " " + from
}

// notes returns annotations for fields that have no equivalent.
func (c *conversion) notes() any {
	notes := entries{{key: noteJob, value: c.name}}
	for _, n := range []entry{{noteCluster, c.virtualCluster, ""}, {noteGPU, c.gpuType, ""}, {noteExtras, c.extras, "extras"}} {
		if n.value != "" {
			notes = append(notes, n)
		}
	}
	return notes
}

// queue returns the label of the Kueue queue, or nil.
func (c *conversion) queue() any {
	queue := c.opts.Queue
	switch {
	case queue == NoQueue:
		return nil
	case queue == "" && c.virtualCluster == "":
		return nil
	case queue == "":
		queue = dnsName(c.virtualCluster, labelMax)
		c.warn("virtualCluster %s becomes the Kueue queue %s: the job stays suspended until Kueue admits it; select another queue with --queue, or use --queue=none without Kueue", c.virtualCluster, queue)
	}
	return entries{{queueLabel, queue, c.field("virtualCluster")}}
}

// suspend returns true if Kueue starts the job, and nil otherwise.
func (c *conversion) suspend() any {
	if c.queue() == nil {
		return nil
	}
	return true
}

func (c *conversion) jobSet(head entries) entries {
	var roles []any
	var winners []any
	for _, t := range c.roles {
		name := c.names.roles[t.name]
		roles = append(roles, entries{
			{"name", name, changed("name", t.name, name)},
			{key: "template", value: entries{{key: "spec", value: c.jobSpec(t)}}},
		})
		if t.minSucceeded != never && !t.ignoresExit() {
			winners = append(winners, name)
		}
	}
	spec := entries{
		{key: "suspend", value: c.suspend(), comment: "until Kueue admits it"},
		{key: "network", value: entries{
			{key: "enableDNSHostnames", value: true},
			{"publishNotReadyAddresses", true, "tasks resolve each other's names while they start"},
		}},
		{key: "failurePolicy", value: c.failurePolicy()},
	}
	if len(winners) > 0 {
		spec = append(spec, entry{"successPolicy", entries{
			{key: "operator", value: "Any"},
			{key: "targetReplicatedJobs", value: flow(list(winners...))},
		}, c.field("minSucceededTaskCount") + ": these roles end the job"})
	}
	spec = append(spec, entry{"replicatedJobs", list(roles...), "taskRoles"})
	return entries{
		{key: "apiVersion", value: "jobset.x-k8s.io/v1alpha2"},
		{key: "kind", value: "JobSet"},
		{key: "metadata", value: head},
		{key: "spec", value: spec},
	}
}

// failurePolicy returns the number of restarts of the JobSet. Failures that a retry cannot fix,
// such as a missing source, end it at once.
func (c *conversion) failurePolicy() entries {
	restarts := c.retries
	if restarts == endless {
		restarts = math.MaxInt32
	}
	policy := entries{{"maxRestarts", restarts, c.field("retryCount") + " " + strconv.Itoa(c.retries)}}
	if restarts > 0 {
		policy = append(policy, entry{key: "rules", value: list(entries{
			{key: "name", value: "hopeless"},
			{key: "action", value: "FailJobSet"},
			{"onJobFailureReasons", flow(list("PodFailurePolicy")), "stager's exit code: a retry cannot succeed"},
		})})
	}
	return policy
}

func (c *conversion) indexedJob(head entries) entries {
	spec := c.jobSpec(c.roles[0])
	if c.suspend() != nil {
		spec = append(entries{{"suspend", true, "until Kueue admits it"}}, spec...)
	}
	return entries{
		{key: "apiVersion", value: "batch/v1"},
		{key: "kind", value: "Job"},
		{key: "metadata", value: head},
		{key: "spec", value: spec},
	}
}

func (c *conversion) service() entries {
	return entries{
		{key: "apiVersion", value: "v1"},
		{key: "kind", value: "Service"},
		{key: "metadata", value: entries{{key: "name", value: c.names.job}}},
		{key: "spec", value: entries{
			{key: "clusterIP", value: "None"},
			{key: "publishNotReadyAddresses", value: true},
			{key: "selector", value: entries{{key: "batch.kubernetes.io/job-name", value: c.names.job}}},
		}},
	}
}

// jobSpec returns the spec of a role's Job.
func (c *conversion) jobSpec(t *role) entries {
	spec := entries{
		{key: "completionMode", value: "Indexed"},
		{"completions", t.tasks, c.field("taskNumber")},
		{key: "parallelism", value: t.tasks},
	}
	spec = append(spec, c.failures(t)...)
	if t.minSucceeded != never && t.minSucceeded != t.tasks {
		spec = append(spec, entry{"successPolicy", entries{
			{key: "rules", value: list(flow(entries{{key: "succeededCount", value: t.minSucceeded}}))},
		}, c.field("minSucceededTaskCount")})
	}
	return append(spec, entry{key: "template", value: c.pod(t)})
}

// failures returns how often a task of a role is retried, and how many failed tasks end its Job.
func (c *conversion) failures(t *role) entries {
	failed, succeeded := c.field("minFailedTaskCount"), c.field("minSucceededTaskCount")
	tries := entry{key: "backoffLimitPerIndex", value: t.tries}
	if t.tries < 0 {
		tries.value = math.MaxInt32
	}
	if t.tries != 0 {
		tries.comment = "taskRetryCount " + strconv.Itoa(t.tries)
	}
	switch {
	case t.minFailed == 1 && t.tries == 0:
		return entries{{"backoffLimit", 0, failed + " 1"}}
	case t.minFailed == 1:
		return entries{tries, {"maxFailedIndexes", 0, failed + " 1"}}
	case t.minFailed != never:
		c.warn("task role %s: if fewer than %d tasks fail, the job still fails in Kubernetes, after the other tasks have ended; in OpenPAI it succeeded", t.name, t.minFailed)
		return entries{tries, {"maxFailedIndexes", t.minFailed - 1, failed + " " + strconv.Itoa(t.minFailed)}}
	case !t.ignoresExit():
		c.warn("task role %s: %s null has no equivalent: if fewer than %d tasks succeed, the job fails", t.name, failed, t.minSucceeded)
		if tries.comment == "" {
			tries.comment = failed + " null: the other tasks continue"
		}
		return entries{tries}
	}
	c.warn("task role %s: %s null has no equivalent: the command's exit code is logged and replaced by 0", t.name, failed)
	if t.minSucceeded != never && c.set {
		c.warn("task role %s: %s %d does not end the job, because failed tasks count as succeeded", t.name, succeeded, t.minSucceeded)
	}
	return entries{{"backoffLimit", 0, failed + " null: the command exits with 0"}}
}

// ignoresExit reports whether a failing command must not fail its pod. That is the case if no
// number of failures ends the job, and no number of successes below the total does.
func (t *role) ignoresExit() bool {
	return t.minFailed == never && (t.minSucceeded == never || t.minSucceeded == t.tasks)
}

func (c *conversion) pod(t *role) entries {
	notes := entries{{key: noteRole, value: t.name}}
	if plan := c.plan(t); plan != "" {
		notes = append(notes, entry{jobspec.AnnotationPlanYAML, plan, c.field("codeDir, dataDir and outputDir")})
	}
	spec := entries{{key: "restartPolicy", value: "Never"}}
	if !c.set {
		spec = append(spec, entry{"subdomain", c.names.job, "the Service"})
	}
	spec = append(spec, c.nodes(t)...)
	if c.authFile != "" || len(c.registries) > 0 {
		spec = append(spec, entry{"imagePullSecrets", list(flow(entries{{key: "name", value: c.pullSecret()}})), c.field("authFile")})
	}
	size := func() *yaml.Node {
		limits := entries{{key: "cpu", value: t.cpu}, {key: "memory", value: fmt.Sprintf("%dMi", t.memory)}}
		if t.gpu > 0 {
			limits = append(limits, entry{key: "nvidia.com/gpu", value: t.gpu})
		}
		return flow(limits)
	}
	mounts := []any{flow(entries{{key: "name", value: "shm"}, {key: "mountPath", value: "/dev/shm"}})}
	volumes := []any{entries{
		{key: "name", value: "shm"},
		{"emptyDir", flow(entries{{key: "medium", value: "Memory"}, {key: "sizeLimit", value: fmt.Sprintf("%dMi", t.shm)}}), c.field("shmMB")},
	}}
	for _, s := range c.storages {
		if c.opts.Storages[s.name] == "" {
			mount, volume := s.claim()
			mounts, volumes = append(mounts, mount), append(volumes, volume)
		}
	}
	command := list("bash", "-c", jobspec.Dollars(c.script(t)))
	if t.secret {
		mounts = append(mounts, flow(entries{{key: "name", value: "commands"}, {key: "mountPath", value: commandsPath}, {key: "readOnly", value: true}}))
		volumes = append(volumes, entries{
			{key: "name", value: "commands"},
			{"secret", flow(entries{{key: "secretName", value: c.commandSecretName()}}), "commands with secrets"},
		})
		command = list("bash", commandsPath+"/"+c.names.roles[t.name])
	}
	if c.codeDir != "" {
		mounts = append(mounts, flow(entries{{key: "name", value: "code"}, {key: "mountPath", value: c.codePath()}, {key: "readOnly", value: true}}))
		volumes = append(volumes, entries{
			{key: "name", value: "code"},
			{"emptyDir", flow(entries{{key: "sizeLimit", value: codeRoom.String()}}), "codeDir"},
		})
	}
	spec = append(
		spec,
		entry{key: "containers", value: list(entries{
			{key: "name", value: "main"},
			{key: "image", value: cmp.Or(t.image, c.image)},
			{key: "command", value: command},
			{key: "env", value: c.variables(t)},
			{key: "resources", value: entries{
				{"requests", size(), c.field("cpuNumber, memoryMB, gpuNumber")},
				{key: "limits", value: size()},
			}},
			{key: "volumeMounts", value: list(mounts...)},
		})},
		entry{key: "volumes", value: list(volumes...)},
	)
	return entries{
		{key: "metadata", value: entries{{key: "annotations", value: notes}}},
		{key: "spec", value: spec},
	}
}

// variables returns the environment of a role's pods.
func (c *conversion) variables(t *role) *yaml.Node {
	all := list()
	for _, s := range c.environment(t, -1) {
		for i, v := range s.variables {
			e := entries{{key: "name", value: v.name}, {key: "value", value: jobspec.Dollars(v.value)}}
			if v.field != "" {
				e[1] = entry{key: "valueFrom", value: flow(entries{{key: "fieldRef", value: flow(entries{{key: "fieldPath", value: v.field}})}})}
			}
			n := flow(e)
			if i == 0 {
				n.HeadComment = "# " + s.comment
			}
			all.Content = append(all.Content, n)
		}
	}
	return all
}

// nodes returns the node selector for the job's type of GPU.
func (c *conversion) nodes(t *role) entries {
	if c.gpuType == "" || t.gpu == 0 {
		return nil
	}
	label, value, ok := strings.Cut(c.opts.GPUTypes[c.gpuType], "=")
	if !ok || label == "" {
		c.warn("%s %s selects no nodes; set their label with --gpu-type %s=LABEL=VALUE", c.field("gpuType"), c.gpuType, c.gpuType)
		return nil
	}
	return entries{{"nodeSelector", entries{{key: label, value: value}}, c.field("gpuType") + " " + c.gpuType}}
}

// script returns the bash script of a role. As in OpenPAI it copies the code into the working
// directory and then runs the command.
func (c *conversion) script(t *role) string {
	var lines []string
	if c.codeDir != "" {
		lines = append(lines, "cp -r "+quote(c.root+"/code")+"/* ./ || exit")
	}
	command := strings.TrimRight(t.command, "\n")
	if t.ignoresExit() {
		lines = append(lines, "(", command, ")", `code=$?; [ $code = 0 ] || echo "the command exited with code $code, which is ignored" >&2`, "exit 0")
	} else {
		lines = append(lines, command)
	}
	return strings.Join(lines, "\n")
}

// quote quotes a text as one shell word.
func quote(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._-", r) && (r > 'z' || unreachable.MatchString(string(r)))
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
