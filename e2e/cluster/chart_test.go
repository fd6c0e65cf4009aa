package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

const (
	chartName      = "stager-webhook" // of all its objects
	chartNamespace = "charted"
)

// helm runs Helm with the administrator's rights.
func (c *cluster) helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := servers.Program("helm-4") // built before there were namespaces without a network
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, append(args, "--namespace", chartNamespace)...)
	dir := t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.admin, "HELM_DATA_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_CACHE_HOME="+dir)
	return output(cmd)
}

// does runs Helm, which must succeed.
func (c *cluster) does(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.helm(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// installsChart loads the image of a release into containerd and installs its chart by Helm, both from
// the release's files and without a value, as docs/install.md does. The Job of docs/webhook.md runs with it, and
// "helm test", at work and without a replica. Then it upgrades the chart and removes it.
func installsChart(t *testing.T, c *cluster, s3 *servers.S3) {
	file := func(name string) string { return c.file(filepath.Join(releaseDir, name)) }
	if _, err := c.ctr(t.Context(), "-n", "k8s.io", "images", "import", file("stager_"+releaseVersion+"_image.tar")); err != nil {
		t.Fatal(err)
	}
	chart := file("stager-" + releaseVersion + ".tgz")
	c.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: `+chartNamespace+`, labels: {pod-security.kubernetes.io/enforce: restricted}}}`)
	c.does(t, "install", "stager", chart)
	c.accommodate(t, chartNamespace, chartName)
	c.rollout(t)
	out, err := c.in(chartNamespace).kubectl(t.Context(), "", "exec", "deployment/"+chartName, "--", "/stager", "version")
	if want := "stager " + releaseVersion + " "; err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("the webhook's version is %q, %v, want %s", out, err, want)
	}
	c.injects(t, []string{releaseImage + ":" + releaseVersion})
	p := newPage(t, c, s3)
	p.stores(t)
	p.runsCharted(t)

	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	c.forwardNew(ctx, chartNamespace, chartName+"-test", 80, 9090)
	if out := c.does(t, "test", "stager", "--timeout", "2m"); !regexp.MustCompile(`(?m)^Phase: +Succeeded$`).MatchString(out) {
		t.Errorf("helm test printed\n%s\nwant a test that succeeded", out)
	}

	// The certificate, which the webhook put into objects of the chart, stays.
	c.does(t, "upgrade", "stager", chart, "--set", "replicas=1,failurePolicy=Ignore,injection.podListen=:9090")
	c.rollout(t)
	hooks, _ := c.in(chartNamespace).get(t, "mutatingwebhookconfiguration", chartName).at("webhooks").([]any)
	hook, _ := hooks[0].(map[string]any)
	if authority, _ := object(hook).at("clientConfig", "caBundle").(string); hook["failurePolicy"] != "Ignore" || authority == "" {
		t.Errorf("after the upgrade the webhook is %v, want Ignore and its authority", hook)
	}
	c.injects(t, []string{releaseImage + ":" + releaseVersion})

	if _, err := c.in(chartNamespace).kubectl(t.Context(), "", "scale", "deployment/"+chartName, "--replicas=0"); err != nil {
		t.Fatal(err)
	}
	if out, err := c.helm(t, "test", "stager", "--timeout", "15s"); err == nil {
		t.Errorf("without a replica helm test printed\n%s\nwant an error", out)
	}

	c.does(t, "uninstall", "stager", "--wait")
	for _, kind := range []string{"mutatingwebhookconfiguration", "validatingadmissionpolicy", "clusterrole", "deployment", "secret", "serviceaccount"} {
		out, err := c.in(chartNamespace).kubectl(t.Context(), "", "get", kind, "-o", "name")
		if err != nil || strings.Contains(out, chartName) {
			t.Errorf("of kind %s there is %q, %v, want nothing of the chart", kind, out, err)
		}
	}
}

// runsCharted runs the page's Job under another name, with the webhook of the chart.
func (p *page) runsCharted(t *testing.T) {
	t.Helper()
	p.run(t, p.commands[slices.IndexFunc(p.commands, func(command string) bool { return strings.Contains(command, "create secret") })])
	p.run(t, "sed 's/name: train}/name: charted}/' job.yaml | kubectl apply -f -")
	p.run(t, "kubectl wait --for=condition=Complete job/charted --timeout=3m")
	const logs = "kubectl logs -l job-name=charted -c main | grep trained"
	p.run(t, logs)
	if got, want := p.said[logs], "trained on 4 shards\ntrained on 4 shards\n"; got != want {
		t.Errorf("the pods said %q, want %q", got, want)
	}
	const images = "kubectl get pods -l job-name=charted -o jsonpath='{.items[*].spec.initContainers[*].image}'"
	p.run(t, images)
	got, want := strings.Fields(p.said[images]), releaseImage+":"+releaseVersion
	if len(got) == 0 || slices.ContainsFunc(got, func(image string) bool { return image != want }) {
		t.Errorf("stager's containers have the images %q, want %s", got, want)
	}
	p.run(t, "kubectl delete job charted")
}

func (c *cluster) rollout(t *testing.T) {
	t.Helper()
	if _, err := c.in(chartNamespace).kubectl(t.Context(), "", "rollout", "status", "deployment/"+chartName, "--timeout=2m", "--request-timeout=2m"); err != nil {
		t.Fatal(err)
	}
}

// injects waits until a pod that asks for data gets containers of these images.
func (c *cluster) injects(t *testing.T, want []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var images []string
	var complaints string
	if err := c.until(ctx, "pods are injected", func() bool {
		var o object
		o, complaints, _ = c.said(t, podAsking("", `stager.dev/in.code: "s3://b/code/ -> /code"`))
		images = texts(o.at("spec", "initContainers"), "image")
		return slices.Equal(images, want)
	}); err != nil {
		t.Errorf("%v; they get %q: %s", err, images, complaints)
	}
}
