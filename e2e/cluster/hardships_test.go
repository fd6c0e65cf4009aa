package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// crowd creates pods that ask for data and that no node takes.
type crowd struct {
	c       *cluster
	http    *http.Client
	made    int
	ignores bool // the failurePolicy is Ignore
}

// crowdSize is how many pods are created in a row, and atOnce how many of them at a time. The API server
// waits 5 s for the webhook, and a busy machine of two cores needs about that for 200 at a time.
const (
	crowdSize = 200
	atOnce    = 50
)

// fate is what became of the creation of a pod.
type fate struct {
	injected bool
	refused  string // why; "": it was taken
	warnings []string
	took     time.Duration
}

// warned reports whether the user of a pod is warned that it runs without its data.
func (f fate) warned() bool {
	return strings.Contains(strings.Join(f.warnings, " "), "it runs without its data")
}

func newCrowd(t *testing.T, c *cluster) *crowd {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.file("admin.crt"), c.file("admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(read(t, c.file("ca.crt"))))
	return &crowd{c: c, http: &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}},
	}}
}

// create creates one pod, which nobody runs.
func (w *crowd) create(ctx context.Context, name string) (f fate, err error) {
	const pod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "labels": {"stager.dev/inject": "true"}, "annotations": {"stager.dev/in.code": "s3://b/code/ -> /code"}},
		"spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "trainer"}]}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://127.0.0.1:6443/api/v1/namespaces/crowd/pods", strings.NewReader(fmt.Sprintf(pod, name)))
	if err != nil {
		return f, err
	}
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := w.http.Do(req)
	if err != nil {
		return f, err
	}
	defer resp.Body.Close() // it is read
	text, err := io.ReadAll(resp.Body)
	f.took, f.warnings = time.Since(began), resp.Header.Values("Warning")
	var o object
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if resp.StatusCode != http.StatusCreated {
		f.refused, _ = o["message"].(string)
		return f, err
	}
	f.injected = o.at("metadata", "annotations", "stager.dev/status") != nil
	return f, err
}

// burst creates so many pods, as fast as it can. Those that are refused are created again, as the
// controller of a Job does, until none is left. Every pod that is taken must have stager in it; with
// failurePolicy Ignore its user may be warned instead that it has not.
func (w *crowd) burst(t *testing.T, n int) (refused int) {
	t.Helper()
	var mu sync.Mutex // guards all below
	var took []time.Duration
	var first string
	turns := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for range n {
		w.made++
		name := fmt.Sprintf("pod-%d", w.made)
		wg.Go(func() {
			for try := range 60 {
				turns <- struct{}{}
				f, err := w.create(t.Context(), name)
				<-turns
				mu.Lock()
				took = append(took, f.took)
				switch {
				case err != nil || f.refused == "" && !f.injected && !(w.ignores && f.warned()):
					t.Errorf("pod %s was taken without stager in it: %q, %v", name, f.warnings, err)
				case f.refused != "":
					refused++
					first = f.refused
				}
				mu.Unlock()
				if err != nil || f.refused == "" {
					return
				}
				<-time.After(time.Duration(try+1) * 100 * time.Millisecond) // as its controller does
			}
			t.Errorf("pod %s was refused to the end", name)
		})
	}
	wg.Wait()
	slices.Sort(took)
	t.Logf("%d pods, %d at once: %d refusals, half within %s, 99 of 100 within %s %s", n, atOnce, refused,
		took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond), first)
	return refused
}

// hardships has the webhook's pods deleted and killed, their certificate renewed and all of
// them gone, while pods are created by hundreds.
func (c *cluster) hardships(t *testing.T) {
	t.Helper()
	c.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: crowd}}`)
	w := newCrowd(t, c)
	if refused := w.burst(t, crowdSize); refused != 0 {
		t.Errorf("%d of %d pods were refused by a webhook at rest", refused, crowdSize)
	}
	w.latency(t)

	// As a drain does. The pod goes on serving until its Service knows.
	pods := c.webhookPods(t)
	if _, err := c.kubectl(t.Context(), "", "delete", "pod", "-n", webhookNamespace, pods[0].name, "--wait=false"); err != nil {
		t.Fatal(err)
	}
	if refused := w.burst(t, crowdSize); refused != 0 {
		t.Errorf("%d of %d pods were refused while a replica was deleted", refused, crowdSize)
	}
	c.rolledOut(t)

	// What the dead replica had, and what comes until its Service knows, is refused, and created
	// again.
	c.killReplica(t)
	w.burst(t, crowdSize)
	c.rolledOut(t)

	w.renewal(t)
	w.renewalWithLoss(t)
	w.absence(t)
}

// killReplica kills the process of one of the webhook's pods, as the kernel does.
func (c *cluster) killReplica(t *testing.T) {
	t.Helper()
	if _, err := c.ctr(t.Context(), "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", c.webhookPods(t)[0].container); err != nil {
		t.Fatal(err)
	}
}

// webhookPod is one of the webhook's.
type webhookPod struct{ name, ip, container string }

func (c *cluster) webhookPods(t *testing.T) (all []webhookPod) {
	t.Helper()
	const columns = `jsonpath={range .items[?(@.status.phase=="Running")]}{.metadata.name} {.status.podIP} {.status.containerStatuses[0].containerID} {.metadata.deletionTimestamp}{"\n"}{end}`
	out, err := c.kubectl(t.Context(), "", "get", "pods", "-n", webhookNamespace, "-l", "app.kubernetes.io/name="+webhookName, "-o", columns)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) == 3 { // else it ends
			all = append(all, webhookPod{words[0], words[1], strings.TrimPrefix(words[2], "containerd://")})
		}
	}
	if len(all) == 0 {
		t.Fatalf("the webhook has no pods: %s", out)
	}
	return all
}

// rolledOut waits until the webhook has all its replicas.
func (c *cluster) rolledOut(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.until(ctx, "the webhook has two replicas", func() bool {
		out, err := c.kubectl(ctx, "", "get", "deployment", webhookName, "-n", webhookNamespace, "-o", "jsonpath={.status.readyReplicas} {.status.replicas}")
		return err == nil && out == "2 2"
	}); err != nil {
		t.Fatal(err)
	}
}

// latency tells how long the webhook itself took for its answers.
func (w *crowd) latency(t *testing.T) {
	t.Helper()
	for _, pod := range w.c.webhookPods(t) {
		resp, err := http.Get("http://" + pod.ip + ":9090/metrics") //nolint:noctx // it ends with the test
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "stager_webhook_seconds_bucket") || strings.HasPrefix(line, "stager_webhook_seconds_count") {
				t.Log(pod.name, strings.TrimSpace(line))
			}
		}
	}
}

// renewal has the webhook serve the next certificate, of another authority, while pods are
// created: as it does after 60 days.
func (w *crowd) renewal(t *testing.T) {
	t.Helper()
	serial := w.nextCertificate(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(400 * time.Millisecond)
	defer tick.Stop()
	for created := 0; ; created++ {
		w.made++
		f, err := w.create(ctx, fmt.Sprintf("pod-%d", w.made))
		if err != nil || !f.injected {
			t.Errorf("a pod during the renewal: %+v, %v, want it taken with stager in it", f, err)
		}
		served, replicas := w.c.serving(ctx, t, serial)
		if served == replicas {
			t.Logf("%d pods were created until all replicas served the next certificate", created+1)
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d of %d replicas serve the next certificate", served, replicas)
		}
	}
	if refused := w.burst(t, crowdSize); refused != 0 {
		t.Errorf("%d of %d pods were refused behind the renewal", refused, crowdSize)
	}
}

// serving counts the webhook's pods, and those that serve the certificate with a number.
func (c *cluster) serving(ctx context.Context, t *testing.T, serial *big.Int) (served, replicas int) {
	t.Helper()
	pods := c.webhookPods(t)
	for _, pod := range pods {
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", pod.ip+":8443") //nolint:gosec // its certificate is looked at
		if err != nil {
			continue
		}
		if conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Cmp(serial) == 0 {
			served++
		}
		conn.Close()
	}
	return served, len(pods)
}

// renewalWithLoss has a replica killed in the middle of a renewal, while pods are created by
// hundreds. The other one and the replica that starts again finish the renewal.
func (w *crowd) renewalWithLoss(t *testing.T) {
	t.Helper()
	serial := w.nextCertificate(t)
	w.c.killReplica(t)
	w.burst(t, crowdSize)
	w.c.rolledOut(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := w.c.until(ctx, "both replicas serve the next certificate", func() bool {
		served, replicas := w.c.serving(ctx, t, serial)
		return served == 2 && replicas == 2
	}); err != nil {
		t.Fatal(err)
	}
	if refused := w.burst(t, crowdSize); refused != 0 {
		t.Errorf("%d of %d pods were refused behind the renewal with a loss", refused, crowdSize)
	}
}

// nextCertificate puts a certificate into the webhook's Secret that has waited for long enough
// to be served, and returns its number.
func (w *crowd) nextCertificate(t *testing.T) *big.Int {
	t.Helper()
	dir := t.TempDir()
	ca, err := newAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		Subject: pkix.Name{CommonName: "next"}, DNSNames: []string{webhookName + "." + webhookNamespace + ".svc"},
		NotBefore: time.Now().Add(-3 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if err := ca.sign("next", leaf, key); err != nil {
		t.Fatal(err)
	}
	old, _ := w.c.get(t, "secret", webhookName+"-tls").at("data", "ca.crt").(string)
	bundle, err := base64.StdEncoding.DecodeString(old)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]any{"data": map[string][]byte{
		"ca.crt":   append(bytes.Clone(bundle), read(t, filepath.Join(dir, "ca.crt"))...),
		"next.crt": []byte(read(t, filepath.Join(dir, "next.crt"))),
		"next.key": []byte(read(t, filepath.Join(dir, "next.key"))),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.c.kubectl(t.Context(), "", "patch", "secret", webhookName+"-tls", "-n", webhookNamespace, "--type=merge", "-p", string(data)); err != nil {
		t.Fatal(err)
	}
	return leaf.SerialNumber
}

// absence has no replica answer: with failurePolicy Fail no pod is created, with Ignore it is
// taken without its data, and its user is warned. With Ignore and a replica that is killed no pod
// is refused.
func (w *crowd) absence(t *testing.T) {
	t.Helper()
	scale := func(replicas string) {
		if _, err := w.c.kubectl(t.Context(), "", "scale", "deployment", webhookName, "-n", webhookNamespace, "--replicas="+replicas); err != nil {
			t.Fatal(err)
		}
	}
	policy := func(value string) {
		const patch = `[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": %q}]`
		if _, err := w.c.kubectl(t.Context(), "", "patch", "mutatingwebhookconfiguration", webhookName, "--type=json", "-p", fmt.Sprintf(patch, value)); err != nil {
			t.Fatal(err)
		}
	}
	becomes := func(what string, is func(fate) bool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var f fate
		if err := w.c.until(ctx, what, func() bool {
			w.made++
			var err error
			f, err = w.create(ctx, fmt.Sprintf("pod-%d", w.made))
			return err == nil && is(f)
		}); err != nil {
			t.Fatalf("%v; the last was %+v", err, f)
		}
	}
	scale("0")
	becomes("pods are refused", func(f fate) bool { return strings.Contains(f.refused, "failed calling webhook \"inject.stager.dev\"") })
	policy("Ignore")
	becomes("pods are taken without their data, and warned of", func(f fate) bool {
		return f.refused == "" && !f.injected && f.warned()
	})
	scale("2")
	w.c.rolledOut(t)
	becomes("pods get their data with Ignore, too", func(f fate) bool { return f.injected })
	w.ignores = true
	w.c.killReplica(t)
	if refused := w.burst(t, crowdSize); refused != 0 {
		t.Errorf("%d of %d pods were refused with failurePolicy Ignore while a replica was killed", refused, crowdSize)
	}
	w.c.rolledOut(t)
	w.ignores = false
	policy("Fail")
	becomes("pods get their data again", func(f fate) bool { return f.injected })
}

// revisions looks whether a namespace with the label of a revision is served by that one, and
// all others by the first.
func (c *cluster) revisions(t *testing.T) {
	t.Helper()
	const in = `stager.dev/in.code: "s3://b/code/ -> /code"`
	for namespace, want := range map[string]string{"trial": secondImage, "default": stagerImage} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var images []string
		if err := c.until(ctx, "pods of "+namespace+" get the image "+want, func() bool {
			o, _, _ := c.in(namespace).said(t, podAsking("", in))
			images = texts(o.at("spec", "initContainers"), "image")
			return slices.Equal(images, []string{want})
		}); err != nil {
			t.Errorf("%v; they get %q", err, images)
		}
	}
}
