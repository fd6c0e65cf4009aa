package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/e2e/servers"
)

// page is docs/webhook.md as somebody types it who has adapted names and addresses.
type page struct {
	c   *cluster
	s3  *servers.S3
	dir string // where it is typed

	commands []string          // behind a $
	said     map[string]string // by each command
	env      []string          // that it exports
	real     *strings.Replacer
}

// newPage reads the page and writes its job.yaml.
func newPage(t *testing.T, c *cluster, s3 *servers.S3) *page {
	t.Helper()
	text := read(t, "../../docs/webhook.md")
	p := &page{
		c: c, s3: s3, dir: t.TempDir(), said: make(map[string]string),
		real: strings.NewReplacer(
			"--image registry.example.com/stager:0.1.0", "--image "+stagerImage+" --image-pull-policy Never",
			"--image registry.example.com/stager:0.2.0", "--image "+secondImage+" --image-pull-policy Never",
			"image: registry.example.com/trainer:1\n", "image: "+trainerImage+"\n        imagePullPolicy: Never\n",
			"https://s3.example.com", s3.Endpoint, "us-east-1", s3.Region, "=KEY", "="+s3.AccessKey, "=SECRET", "="+s3.SecretKey,
			"create secret generic s3 ", "create secret generic s3 --dry-run=client -o yaml ", // it is there already, with less in it
		),
	}
	_, yaml, _ := strings.Cut(text, "```yaml\n")
	yaml, _, _ = strings.Cut(yaml, "```\n")
	if err := os.WriteFile(filepath.Join(p.dir, "job.yaml"), []byte(p.real.Replace(yaml)), 0o600); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if command, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    $ "); ok {
			p.commands = append(p.commands, command)
		}
	}
	return p
}

// until runs the page's commands in order, up to the first that has words in it, and that one.
func (p *page) until(t *testing.T, words string) {
	t.Helper()
	for len(p.commands) > 0 {
		command := p.commands[0]
		p.commands = p.commands[1:]
		p.run(t, command)
		if strings.Contains(command, words) {
			return
		}
	}
	t.Fatalf("the page has no command with %q", words)
}

// run runs one command. An export holds for those that follow it.
func (p *page) run(t *testing.T, command string) {
	t.Helper()
	script := p.real.Replace(command)
	if strings.Contains(command, "create secret") {
		script += " | kubectl apply -f -"
	}
	if strings.HasPrefix(command, "export ") {
		p.env = append(p.env, strings.Fields(strings.TrimPrefix(script, "export "))...)
		return
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", script)
	cmd.Dir = p.dir
	cmd.Env = append(append(os.Environ(), p.env...), "KUBECONFIG="+p.c.admin, "PATH="+p.c.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := output(cmd)
	if err != nil {
		t.Fatalf("$ %s\n%v", command, err)
	}
	p.said[command] = out
	if strings.Contains(command, "manifests webhook") && strings.Contains(command, "apply") {
		name := "stager-webhook"
		if _, revision, ok := strings.Cut(command, "--revision "); ok {
			name += "-" + strings.Fields(revision)[0]
		}
		p.c.accommodate(t, webhookNamespace, name)
	}
}

// accommodate gives the pods of the webhook's Deployment what the cluster here
// has switched off and lacks: the volume with the token of their service account, and a way to
// their Service.
func (c *cluster) accommodate(t *testing.T, namespace, name string) {
	t.Helper()
	const account = `{"spec": {"template": {"spec": {
		"volumes": [{"name": "account", "projected": {"sources": [
			{"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
			{"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
			{"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}]}}],
		"containers": [{"name": "webhook", "volumeMounts": [{"name": "account", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]}]}}}}`
	if _, err := c.kubectl(t.Context(), "", "patch", "deployment", name, "-n", namespace, "-p", account); err != nil {
		t.Fatal(err)
	}
	address, _ := c.in(namespace).get(t, "service", name).at("spec", "clusterIP").(string)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	if err := c.forward(ctx, address+":443", c.endpoints(ctx, namespace, name, 8443)); err != nil {
		t.Fatal(err)
	}
}

// newcomer walks through docs/webhook.md, and does its worst to the webhook in between.
func newcomer(t *testing.T, c *cluster, s3 *servers.S3) {
	p := newPage(t, c, s3)
	p.stores(t)
	p.until(t, "stager ls")
	const logs, ls = "kubectl logs -l job-name=train -c main | grep trained", "stager ls -R s3://runs/train/"
	if got, want := p.said[logs], "trained on 4 shards\ntrained on 4 shards\n"; got != want {
		t.Errorf("the pods said %q, want %q", got, want)
	}
	if got := p.said[ls]; !strings.Contains(got, "0/seen") || !strings.Contains(got, "1/seen") {
		t.Errorf("the store has %q, want the files of both pods", got)
	}
	p.refusal(t)
	j := &job{c: c, s3: s3, name: "train"}
	for _, container := range []string{"stager-prefetch", "stager"} {
		if said := p.said["kubectl logs -l job-name=train -c "+container]; said == "" {
			j.tell(t)
			t.Errorf("%s said nothing", container)
		}
	}
	c.hardships(t)
	p.until(t, "kubectl label namespace trial")
	c.revisions(t)
	p.until(t, "stager manifests webhook --image registry.example.com/stager:0.1.0 | kubectl delete")
}

// stores makes the page's dataset and the bucket of its results.
func (p *page) stores(t *testing.T) {
	t.Helper()
	for i := range 8 {
		dir := filepath.Join(p.c.file("s3"), "objects", "datasets", "imagenet", "train")
		err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(filepath.Join(p.c.file("s3"), "objects", "runs"), 0o755),
			os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.tar", i)), make([]byte, 100_000), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// refusal looks whether the user of a Job that cannot be served hears why.
func (p *page) refusal(t *testing.T) {
	t.Helper()
	p.until(t, "| kubectl apply -f -")
	j := &job{c: p.c, name: "wrong"}
	const want = "the annotation stager.dev/input.train is not known; known are stager.dev/in.NAME"
	j.until(t, "its events have the refusal", func(ctx context.Context) bool {
		out, err := p.c.kubectl(ctx, "", "describe", "job", "wrong")
		return err == nil && strings.Contains(out, want)
	})
	p.until(t, "kubectl logs -l job-name=train -c stager")
	p.until(t, "kubectl logs -l job-name=train -c stager")
}
