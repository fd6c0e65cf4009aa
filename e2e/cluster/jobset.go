package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	jobSetController = "jobset"
	jobSetModule     = "sigs.k8s.io/jobset"
	jobSetResource   = "jobsets.jobset.x-k8s.io"
	jobSetProbes     = "127.0.0.1:8081"
)

// jobSetDefinition links the project's own definition of its kind, which is part of the
// module that its controller is built from, to a file in dir.
func jobSetDefinition(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", jobSetModule)
	cmd.Dir = filepath.Join("modules", "jobset")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := output(cmd)
	var module struct{ Dir string }
	if err = errors.Join(err, json.Unmarshal([]byte(out), &module)); err != nil {
		return err
	}
	return os.Symlink(filepath.Join(module.Dir, "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"), filepath.Join(dir, "jobset.yaml"))
}

// startJobSets installs the JobSet controller with its kind and its webhook, and returns
// when it is ready. The controller runs beside the API server, as an administrator. What
// stop removes would be in the way of tests that know less of the kind.
func (c *cluster) startJobSets(ctx context.Context) (stop func() error, err error) {
	certs := c.file("jobset-certs")
	config := c.file("jobset-config.yaml")
	authority, unread := os.ReadFile(c.file("ca.crt"))
	if err := errors.Join(unread, c.ca.issue("jobset", "jobset", ""), os.Mkdir(certs, 0o700),
		os.Symlink(c.file("jobset.crt"), filepath.Join(certs, "tls.crt")), os.Symlink(c.file("jobset.key"), filepath.Join(certs, "tls.key")),
		os.WriteFile(config, []byte(strings.ReplaceAll(jobSetConfig, "$CERTS", certs)), 0o600)); err != nil {
		return nil, err
	}
	webhooks := strings.ReplaceAll(jobSetWebhooks, "$CA", base64.StdEncoding.EncodeToString(authority))
	stop = func() error {
		_, gone := c.kubectl(context.Background(), webhooks, "delete", "--ignore-not-found", "-f", "-")
		_, undefined := c.kubectl(context.Background(), "", "delete", "crd", jobSetResource, "--wait=false")
		return errors.Join(gone, undefined)
	}
	// Its definition is too long for the annotation that a plain apply makes.
	if _, err := c.kubectl(ctx, "", "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(c.bin, "jobset.yaml")); err != nil {
		return nil, err
	}
	if err := c.until(ctx, "JobSets are known", func() bool { // kubectl wait fails where there is no status as yet
		_, err := c.kubectl(ctx, "", "get", jobSetResource)
		return err == nil
	}); err != nil {
		return stop, err
	}
	if err := c.start(jobSetController, "--kubeconfig="+c.admin, "--config="+config, "--metrics-bind-address=0", "--health-probe-bind-address="+jobSetProbes); err != nil {
		return stop, err
	}
	if err := c.until(ctx, "the JobSet controller is ready", func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+jobSetProbes+"/readyz", http.NoBody)
		if err != nil {
			return false
		}
		resp, err := http.DefaultClient.Do(req)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}); err != nil {
		said, _ := os.ReadFile(c.file(jobSetController + ".log")) // it helps, where there is one
		return stop, fmt.Errorf("%w; it logged\n%s", err, said)
	}
	_, err = c.kubectl(ctx, webhooks, "apply", "-f", "-")
	return stop, err
}

const jobSetConfig = `apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
webhook: {port: 9443, host: 127.0.0.1, certDir: $CERTS}
`

// jobSetWebhooks complete JobSets and refuse wrong ones. Those for pods place them on
// racks, which there are none of.
const jobSetWebhooks = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: jobset}
webhooks:
- name: mjobset.kb.io
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "https://127.0.0.1:9443/mutate-jobset-x-k8s-io-v1alpha2-jobset", caBundle: $CA}
  rules: [{apiGroups: [jobset.x-k8s.io], apiVersions: [v1alpha2], operations: [CREATE], resources: [jobsets]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: jobset}
webhooks:
- name: vjobset.kb.io
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "https://127.0.0.1:9443/validate-jobset-x-k8s-io-v1alpha2-jobset", caBundle: $CA}
  rules: [{apiGroups: [jobset.x-k8s.io], apiVersions: [v1alpha2], operations: [CREATE, UPDATE], resources: [jobsets]}]
`
