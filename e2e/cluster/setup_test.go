package cluster

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSetup asks the API server whether it would take what a cluster needs to put
// stager into pods by itself, in each shape. The webhook's pods are to be taken in its
// namespace, which demands what Pod Security calls restricted.
func TestSetup(t *testing.T) {
	c := asked(t, apiServer)
	c.define(t, kind{"cert-manager.io", "v1", "Issuer", "issuers", ""}, kind{"cert-manager.io", "v1", "Certificate", "certificates", ""})
	c.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: elsewhere, labels: {pod-security.kubernetes.io/enforce: restricted}}}`)
	plan := writePlan(t, windowPlan)
	for _, test := range []struct {
		args  string
		kinds string // that it is made of, sorted
	}{
		{"rbac", "ClusterRole ClusterRoleBinding Role RoleBinding ServiceAccount"},
		{"rbac --cert-manager", "ClusterRole ClusterRoleBinding ServiceAccount"},
		{"webhook --image x:1", "ClusterRole ClusterRoleBinding Deployment MutatingWebhookConfiguration Namespace PodDisruptionBudget Role RoleBinding Secret Service ServiceAccount ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"},
		{"webhook --image x:1 --cert-manager --no-config-maps --no-owners --no-namespaces", "Certificate Deployment Issuer MutatingWebhookConfiguration Namespace PodDisruptionBudget Service ServiceAccount ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"},
		{"map --name imagenet --image x:1 --plan " + plan, "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding"},
	} {
		t.Run(strings.ReplaceAll(strings.TrimSuffix(test.args, " --plan "+plan), " ", "_"), func(t *testing.T) {
			args := append([]string{"manifests"}, strings.Fields(test.args)...)
			if args[1] != "map" {
				args = append(args, "--namespace", "elsewhere")
			}
			// A dry run makes no namespace, so that one is there.
			text := strings.Replace(c.stager(t, "", args...), `name: "elsewhere"`+"\n  labels", `name: "other"`+"\n  labels", 1)
			var got []string
			for _, o := range c.takes(t, text) {
				name, _ := o["kind"].(string)
				got = append(got, name)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != test.kinds {
				t.Errorf("it is made of %q, want %q", got, test.kinds)
			}
		})
	}
}

// windowPlan has an input that is there before a job begins, one that comes while it
// runs, and an output.
const windowPlan = `apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: imagenet}
spec:
  shard: {by: none}
  inputs:
  - {name: code, source: "s3://b/code/", path: /code, credentials: {secret: s3}}
  - {name: train, source: "s3://b/train/", path: /data/train, mode: window, window: {size: 1Gi}}
  outputs:
  - {name: ckpt, path: /out, destination: "s3://b/runs/{job}/{index}/"}
`

func writePlan(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPolicy has the API server itself put stager into pods, by the policy that "stager
// manifests map" prints: what a pod has of its own stays, behind what is put in.
func TestPolicy(t *testing.T) {
	c := asked(t, apiServer)
	c.apply(t, c.stager(t, "", "manifests", "map", "--name", "imagenet", "--image", "x:1", "--plan", writePlan(t, windowPlan)))
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: x, labels: {batch.kubernetes.io/job-name: j, batch.kubernetes.io/job-completion-index: "0", stager.dev/plan: $PLAN}},
		spec: {restartPolicy: Never, volumes: [{name: own, emptyDir: {}}], initContainers: [{name: first, image: i}],
		containers: [{name: main, image: i, env: [{name: OWN, value: x}], volumeMounts: [{name: own, mountPath: /own}]}, {name: second, image: i}]}}`
	with := func(plan string) object {
		return c.creates(t, strings.ReplaceAll(pod, "$PLAN", plan))[0]
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got object
	if err := c.until(ctx, "the policy is heard", func() bool {
		got = with("imagenet")
		return got.at("metadata", "annotations", "stager.dev/status") != nil
	}); err != nil {
		t.Fatal(err)
	}
	containers, _ := got.at("spec", "containers").([]any)
	main, second := object(containers[0].(map[string]any)), object(containers[1].(map[string]any))
	for what, c := range map[string]struct{ got, want []string }{
		"init containers":      {texts(got.at("spec", "initContainers"), "name"), []string{"stager", "stager-prefetch", "first"}},
		"volumes":              {texts(got.at("spec", "volumes"), "name"), []string{"own", "stager-code", "stager-train", "stager-ckpt", "stager-secret-s3", "stager-run", "stager-tmp"}},
		"main's mounts":        {texts(main["volumeMounts"], "mountPath"), []string{"/own", "/code", "/data/train", "/out", "/run/stager"}},
		"main's variables":     {texts(main["env"], "name"), []string{"OWN", "STAGER_SOCKET", "STAGER_INPUT_CODE", "STAGER_INPUT_TRAIN", "STAGER_OUTPUT_CKPT"}},
		"the second's mounts":  {texts(second["volumeMounts"], "mountPath"), nil},
		"the sidecar's policy": {texts(got.at("spec", "initContainers"), "restartPolicy")[:1], []string{"Always"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s are %q, want %q", what, c.got, c.want)
		}
	}
	if grace, _ := got.at("spec", "terminationGracePeriodSeconds").(float64); grace != 630 {
		t.Errorf("the grace period is %v s, want 630", grace)
	}
	if plan := planOf(got); plan != windowPlan {
		t.Errorf("the sidecar's plan is\n%s\nwant\n%s", plan, windowPlan)
	}
	for _, plan := range []string{"another", `""`} {
		if others := with(plan); len(texts(others.at("spec", "initContainers"), "name")) != 1 {
			t.Errorf("a pod with the label %s was changed", plan)
		}
	}
	// The pod as it came out is left as it is, by the policy and by inject.
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	again := c.creates(t, string(text))[0]
	if names := texts(again.at("spec", "initContainers"), "name"); len(names) != 3 {
		t.Errorf("a second time it has %q", names)
	}
}

// planOf is the plan of a pod's first container.
func planOf(pod object) string {
	list, _ := pod.at("spec", "initContainers").([]any)
	if len(list) == 0 {
		return ""
	}
	first, _ := list[0].(map[string]any)
	variables, _ := first["env"].([]any)
	for _, v := range variables {
		if v, _ := v.(map[string]any); v["name"] == "STAGER_PLAN_YAML" {
			text, _ := v["value"].(string)
			return text
		}
	}
	return ""
}
