package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	webhookName      = "stager-webhook" // of all its objects
	webhookNamespace = "stager"
	webhookProbes    = "127.0.0.1:9090"
)

// startWebhook installs the webhook as "stager manifests webhook" prints it and, since
// pods do not reach the API server here, runs the printed Deployment's command beside
// it: with the token of the printed service account, at the printed Service's address.
// It makes its certificate and tells the API server of it by itself. It runs until all
// ends.
func startWebhook(t *testing.T, c *cluster) {
	t.Helper()
	// What a pod finds of its service account.
	account := "/var/run/secrets/kubernetes.io/serviceaccount"
	token, err := c.kubectl(t.Context(), "", "create", "token", webhookName, "-n", webhookNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.MkdirAll(account, 0o755),
		os.WriteFile(filepath.Join(account, "ca.crt"), []byte(read(t, c.file("ca.crt"))), 0o600),
		os.WriteFile(filepath.Join(account, "namespace"), []byte(webhookNamespace), 0o600),
		os.WriteFile(filepath.Join(account, "token"), []byte(token), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "6443")

	service := c.get(t, "service", webhookName)
	address, _ := service.at("spec", "clusterIP").(string)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(c.bin, "busybox"), "ip", "addr", "add", address+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	containers, _ := c.get(t, "deployment", webhookName).at("spec", "template", "spec", "containers").([]any)
	container, _ := containers[0].(map[string]any)
	words, _ := container["args"].([]any)
	var args []string
	for _, word := range words {
		word, _ := word.(string)
		args = append(args, word)
	}
	if err := c.start("stager", append(args, "--reviews="+address+":443", "--probes="+webhookProbes)...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.until(ctx, "the webhook is ready", func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+webhookProbes+"/readyz", http.NoBody)
		if err != nil {
			return false
		}
		resp, err := http.DefaultClient.Do(req)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}); err != nil {
		t.Fatalf("%v; it said\n%s", err, read(t, c.file("stager.log")))
	}
}

// get is an object in the webhook's namespace.
func (c *cluster) get(t *testing.T, kind, name string) (o object) {
	t.Helper()
	out, err := c.kubectl(t.Context(), "", "get", kind, name, "-n", cmp.Or(c.namespace, webhookNamespace), "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// said is what a user sees who creates an object: the object as it then is, if it is
// taken, and what kubectl complains of.
func (c *cluster) said(t *testing.T, manifest string) (o object, complaints string, taken bool) {
	t.Helper()
	cmd := c.admins(t.Context(), manifest, "create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &o)
		taken = true
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return o, stderr.String(), taken
}

// podAsking is a pod with the webhook's label, and with what is given for fields of its
// spec and as annotations.
func podAsking(spec, annotations string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: x, labels: {stager.dev/inject: "true"}, annotations: {%s}},
		spec: {%s restartPolicy: Never, containers: [{name: main, image: trainer}]}}`, annotations, spec)
}

// jobOf is a Job with a name, and with annotations and labels of its pod template.
const jobOf = `{apiVersion: batch/v1, kind: Job, metadata: {name: %s}, spec: {template: {metadata: {%s}, spec: {restartPolicy: Never, containers: [{name: main, image: trainer}]}}}}`

// warns looks at what a user hears of what he wrote for stager and has no effect.
func (c *cluster) warns(t *testing.T) {
	t.Helper()
	const in = `annotations: {stager.dev/in.code: "s3://b/code/ -> /code"}`
	c.define(t, kind{"serving.kserve.io", "v1beta1", "InferenceService", "inferenceservices", ""})
	service := `{apiVersion: serving.kserve.io/v1beta1, kind: InferenceService, metadata: {name: x, ` + in + `}, spec: {predictor: {model: {}}}}`
	for _, test := range []struct{ name, object, want string }{
		{"label and annotations", fmt.Sprintf(jobOf, "x", `labels: {stager.dev/inject: "true"}, `+in), ""},
		{"annotations without the label", fmt.Sprintf(jobOf, "x", in), `the label stager.dev/inject: "true" is not beside them`},
		{"the label without annotations", fmt.Sprintf(jobOf, "x", `labels: {stager.dev/inject: "true"}`), "no annotation beside it says which data the pods need"},
		{"a key of another prefix", fmt.Sprintf(jobOf, "x", `annotations: {stager.io/in.code: x}`), "a prefix that is nearly stager's"},
		{"annotations of the Job itself", strings.Replace(fmt.Sprintf(jobOf, "x", ""), "name: x", "name: x, "+in, 1), "annotations of an object are not seen by the webhook"},
		{"a kind without a pod template", service, "annotations of an object are not seen by the webhook"},
		{"a Job that was injected", c.inject(t, fmt.Sprintf(jobOf, "x", in)), ""},
		{"nothing of stager's", fmt.Sprintf(jobOf, "x", `annotations: {a: b}`), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var complaints string
			if err := c.until(ctx, "the policy is heard", func() bool {
				var taken bool
				_, complaints, taken = c.said(t, test.object)
				return taken && strings.Contains(complaints, test.want)
			}); err != nil || test.want == "" && complaints != "" {
				t.Errorf("its user sees %q, %v, want %q", complaints, err, test.want)
			}
		})
	}
}

// TestWebhook asks the API server for pods, and the API server the webhook.
func TestWebhook(t *testing.T) {
	c := asked(t, apiServer)
	c.apply(t, c.stager(t, "", "manifests", "webhook", "--name", webhookName, "--namespace", webhookNamespace, "--image", stagerImage, "--image-pull-policy", "Never"))
	const plain = `{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: main, image: trainer}]}}`
	// As long as none answers, nobody gets a pod without its data; others get theirs.
	if _, complaints, taken := c.said(t, podAsking("", "")); taken || !strings.Contains(complaints, "inject.stager.dev") {
		t.Errorf("a pod with the label was taken before there was a webhook (%v): %s", taken, complaints)
	}
	if _, complaints, taken := c.said(t, plain); !taken {
		t.Errorf("a pod without the label is refused: %s", complaints)
	}
	startWebhook(t, c)

	const in = `stager.dev/in.code: "s3://b/code/ -> /code"`
	const out = `stager.dev/out.ckpt: "/out -> s3://b/runs/{job}/ ? deadline=5m"`
	for _, test := range []struct {
		name, pod  string
		containers string // of the pod that is taken, in front of main; "": it is refused
		complaint  string // that its user sees; "": none
	}{
		{"asks", podAsking("", in+", "+out), "stager stager-prefetch", "Warning: outputs can be lost: container main has no command"},
		{"asks for nothing", podAsking("", ""), "none", "requests no data"},
		{"has no label", strings.Replace(podAsking("", in), `"true"`, `"false"`, 1), "none", ""},
		{"is of an Argo workflow, with the labels and annotations of its podMetadata", read(t, "../../stager/jobspec/testdata/golden/pod-argo.in.json"), "stager stager-install stager-prefetch init", ""},
		{"warned", podAsking("terminationGracePeriodSeconds: 5,", out), "stager", "Warning: terminationGracePeriodSeconds was 5 and is now 330"},
		{"unknown annotation", podAsking("", `stager.dev/input: x`), "", "the annotation stager.dev/input is not known"},
		{"wrong URL", podAsking("", `stager.dev/in.code: "gopher://b/code/ -> /code"`), "", "gopher"},
		{"no such plan", podAsking("", `stager.dev/plan: "configmap:nowhere"`), "", "nowhere"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, complaints, taken := c.said(t, test.pod)
			names := strings.Join(texts(o.at("spec", "initContainers"), "name"), " ")
			switch {
			case taken != (test.containers != ""):
				t.Errorf("taken: %v, want %v", taken, !taken)
			case taken && names != strings.TrimPrefix(test.containers, "none"):
				t.Errorf("it has the init containers %q, want %q", names, test.containers)
			}
			if !strings.Contains(complaints, test.complaint) || test.complaint == "" && complaints != "" {
				t.Errorf("its user sees %q, want %q", complaints, test.complaint)
			}
		})
	}

	c.warns(t)

	t.Run("one of several", func(t *testing.T) {
		c.apply(t, strings.Replace(fmt.Sprintf(jobOf, "several", ""), "spec: {", "spec: {suspend: true, completions: 4, parallelism: 4, completionMode: Indexed, ", 1))
		out, err := c.kubectl(t.Context(), "", "get", "job", "several", "-o", "jsonpath={.metadata.uid}")
		if err != nil {
			t.Fatal(err)
		}
		pod := strings.Replace(podAsking("", in), "labels: {", `ownerReferences: [{apiVersion: batch/v1, kind: Job, name: several, uid: `+out+`, controller: true}],
			labels: {batch.kubernetes.io/job-completion-index: "1", `, 1)
		o, complaints, taken := c.said(t, pod)
		if text, _ := json.Marshal(o); !taken || !strings.Contains(string(text), `{"name":"STAGER_COUNT","value":"4"}`) {
			t.Errorf("taken: %v, %s, %s, want a pod of 4", taken, complaints, text)
		}
		stranger := strings.Replace(pod, "controller: true", "controller: false", 1)
		if _, complaints, taken := c.said(t, stranger); taken || !strings.Contains(complaints, "their number is unknown") {
			t.Errorf("a pod of nobody knows how many is taken (%v): %s", taken, complaints)
		}
	})

	t.Run("privileges", func(t *testing.T) {
		c.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: limited, labels: {pod-security.kubernetes.io/enforce: restricted}}}`)
		pod := podAsking("", in+`, stager.dev/privileges: files`)
		if _, complaints, taken := c.in("limited").said(t, pod); taken || !strings.Contains(complaints, "stager.dev/privileges: files runs stager as root, and the namespace enforces the Pod Security level restricted") {
			t.Errorf("privileges in a restricted namespace are taken (%v): %s", taken, complaints)
		}
		if _, complaints, taken := c.said(t, pod); !taken || complaints != "" {
			t.Errorf("privileges in another namespace are refused (%v): %s", taken, complaints)
		}
	})

	t.Run("injected before", func(t *testing.T) {
		injected := c.inject(t, podAsking("", in))
		o, complaints, taken := c.said(t, injected)
		if names := texts(o.at("spec", "initContainers"), "name"); !taken || complaints != "" || !slices.Equal(names, []string{"stager-prefetch"}) {
			t.Errorf("taken: %v, %q, %s", taken, names, complaints)
		}
	})

	t.Run("plan of a ConfigMap", func(t *testing.T) {
		c.apply(t, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: imagenet, labels: {stager.dev/plan: ""}}, data: {plan.yaml: %q}}`, windowPlan))
		pod := podAsking("", `stager.dev/plan: "configmap:imagenet"`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it reads them every 10 s
		defer cancel()
		var o object
		if err := c.until(ctx, "the webhook knows the plan", func() (taken bool) {
			o, _, taken = c.said(t, pod)
			return taken
		}); err != nil {
			t.Fatal(err)
		}
		if plan := planOf(o); plan != windowPlan {
			t.Errorf("the pod's plan is\n%s\nwant\n%s", plan, windowPlan)
		}
		// A ConfigMap belongs to those of its namespace.
		elsewhere := strings.Replace(pod, "name: x,", "name: x, namespace: ml,", 1)
		c.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: ml}}`)
		if _, complaints, taken := c.said(t, elsewhere); taken || !strings.Contains(complaints, "imagenet") {
			t.Errorf("the plan of another namespace is used (%v): %s", taken, complaints)
		}
	})
}
