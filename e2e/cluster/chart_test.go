package cluster

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

const (
	chartName      = "stager-chart" // of all its objects
	chartNamespace = "charted"
)

// helm runs Helm with the administrator's rights.
func (c *cluster) helm(t *testing.T, args ...string) string {
	t.Helper()
	program, err := servers.BuildProgram(t.Context(), "helm-4", os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, append(args, "--namespace", chartNamespace)...)
	dir := t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.admin, "HELM_DATA_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_CACHE_HOME="+dir)
	out, err := output(cmd)
	if err != nil {
		t.Fatalf("helm %s: %v", args[0], err)
	}
	return out
}

// installsChart installs the webhook by Helm, upgrades it, and removes it. The API server takes the objects
// of its "helm test", which does not run: pods of this cluster do not reach Services.
func (c *cluster) installsChart(t *testing.T) {
	t.Helper()
	image, tag, _ := strings.Cut(stagerImage, ":")
	values := []string{"stager", "../../deploy/helm/stager", "--set", "name=" + chartName + ",image.repository=" + image + ",image.tag=" + tag + ",image.pullPolicy=Never"}
	c.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: `+chartNamespace+`, labels: {pod-security.kubernetes.io/enforce: restricted}}}`)
	c.helm(t, append([]string{"install"}, values...)...)
	c.accommodate(t, chartNamespace, chartName)
	c.rollout(t)
	c.injects(t, []string{stagerImage})

	test := c.helm(t, append([]string{"template", "--show-only", "templates/tests/ready.yaml"}, values...)...)
	if out, err := c.kubectl(t.Context(), test, "create", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil || strings.Count(out, "created") != 2 {
		t.Errorf("the objects of helm test: got %q, %v, want two taken", out, err)
	}

	// The certificate, which the webhook put into objects of the chart, stays.
	c.helm(t, append([]string{"upgrade", "--set", "replicas=1,failurePolicy=Ignore,injection.podListen=:9090"}, values...)...)
	c.rollout(t)
	hooks, _ := c.get(t, "mutatingwebhookconfiguration", chartName).at("webhooks").([]any)
	hook, _ := hooks[0].(map[string]any)
	if authority, _ := object(hook).at("clientConfig", "caBundle").(string); hook["failurePolicy"] != "Ignore" || authority == "" {
		t.Errorf("after the upgrade the webhook is %v, want Ignore and its authority", hook)
	}
	c.injects(t, []string{stagerImage})

	c.helm(t, "uninstall", "stager", "--wait")
	for _, kind := range []string{"mutatingwebhookconfiguration", "validatingadmissionpolicy", "clusterrole", "deployment", "secret", "serviceaccount"} {
		out, err := c.in(chartNamespace).kubectl(t.Context(), "", "get", kind, "-o", "name")
		if err != nil || strings.Contains(out, chartName) {
			t.Errorf("of kind %s there is %q, %v, want nothing of the chart", kind, out, err)
		}
	}
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
