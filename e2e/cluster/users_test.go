package cluster

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// strict is a namespace that enforces the level restricted of the Pod Security Standards.
const strict = "strict"

const (
	// aUser is a pod whose user is known, and hardened what that level demands of a container.
	aUser    = "restartPolicy: Never\nsecurityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}\n"
	aGroup   = "restartPolicy: Never\nsecurityContext: {runAsNonRoot: true, runAsUser: 1000, runAsGroup: 3000, fsGroup: 2000, seccompProfile: {type: RuntimeDefault}}\n"
	hardened = "securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}\n"

	// saveAndRemove is a trainer whose checkpoint only its owner may read, and is gone before
	// it is saved.
	saveAndRemove = `test -s /data/train/a || exit 3
	mkdir /out/step-1.tmp && echo "weights 1" >/out/step-1.tmp/model && chmod $MODE /out/step-1.tmp/model && mv /out/step-1.tmp /out/step-1
	stager commit ckpt /out/step-1 || exit 4
	rm -r /out/step-1`
)

func withMode(mode string) string { return strings.ReplaceAll(saveAndRemove, "$MODE", mode) }

// users are trainers of all kinds of users, in namespaces that allow anything and nothing.
var users = []row{
	{
		// The user is the image's, which nobody knows: root. Its umask lets the group read.
		name: "user-unknown", objects: []string{"a"}, size: 1,
		annotations: []string{dataset, atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: withMode("u+r"),
		ends: "Complete", model: "weights 1\n",
		also: notRoot,
	},
	{
		// Nobody holds the command's umask, and links to root's files are refused.
		name: "user-unknown-copied", objects: []string{"a"}, size: 1,
		annotations: []string{"finalize: sidecar", dataset, atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: withMode("u+r"),
		ends: "Complete", model: "weights 1\n",
		also: notRoot,
	},
	{
		// What stager may not read is named, to the trainer and at the end.
		name: "user-unknown-private", objects: []string{"a"}, size: 1,
		annotations: []string{dataset, atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: save + `save 1; chmod 600 /out/step-1/model; stager commit ckpt /out/step-1 && exit 4; exit 0`,
		ends: "Failed", failed: 1,
		also: func(t *testing.T, j *job) {
			const path = `jsonpath={.items[0].status.containerStatuses[0].state.terminated.exitCode}`
			if code, err := j.c.kubectl(t.Context(), "", "get", "pod", "-l", j.pods(""), "-o", path); err != nil || code != "75" {
				t.Errorf("the main container ended with %q, %v, want 75", code, err)
			}
			const want = "model cannot be read by stager, which runs as user 65532: it belongs to user 0 and has mode 0600; let its group read it (umask 027), or in Kubernetes write runAsUser, or the annotation stager.dev/privileges: files"
			for _, container := range []string{"main", "stager"} {
				if said, err := j.c.kubectl(t.Context(), "", "logs", "-l", j.pods(""), "-c", container, "--tail=-1"); err != nil || !strings.Contains(said, want) {
					t.Errorf("%s said %q, %v, want %q", container, said, err, want)
				}
			}
		},
	},
	{
		name: "privileges-files", objects: []string{"a"}, size: 1,
		annotations: []string{"privileges: files", "finalize: sidecar", dataset, atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\n",
		main: withMode("600"),
		ends: "Complete", model: "weights 1\n",
	},
	{
		name: "root-by-name", objects: []string{"a"}, size: 1,
		annotations: []string{dataset, atTheEnd}, job: "backoffLimit: 0\n", pod: "restartPolicy: Never\nsecurityContext: {runAsUser: 0}\n",
		main: withMode("600"),
		ends: "Complete", model: "weights 1\n",
	},
	{
		name: "restricted-user", objects: []string{"a"}, size: 1, namespace: strict,
		annotations: []string{dataset, atTheEnd}, job: "backoffLimit: 0\n", pod: aUser, container: hardened,
		main: withMode("600"),
		ends: "Complete", model: "weights 1\n",
		also: notRoot,
	},
	{
		name: "restricted-group", objects: []string{"a"}, size: 1, namespace: strict,
		annotations: []string{dataset, atTheEnd}, job: "backoffLimit: 0\n", pod: aGroup, container: hardened,
		main: withMode("600"),
		ends: "Complete", model: "weights 1\n",
		also: notRoot,
	},
	{
		// A window's files are stager's own, and the trainer removes them.
		name: "restricted-window", objects: shards(8), size: 1 << 20, namespace: strict,
		annotations: []string{"in.train: $BUCKET/data/ -> /data/train ? mode=window&size=4Mi", "out.res: /res -> $BUCKET/out/ ? commit=none&deadline=20s"}, job: "backoffLimit: 0\n", pod: aGroup, container: hardened,
		main: `until test -e /data/train/ready/e0000.END; do for p in /data/train/ready/e0000-*; do
		test -e "$p" && echo x >>/res/had && { rm "$p" || exit 4; }; done; sleep 0.1; done
		test $(wc -l </res/had) = 8`,
		ends: "Complete",
		also: notRoot,
	},
}

// notRoot looks whether stager's containers ran without root and capabilities.
func notRoot(t *testing.T, j *job) {
	t.Helper()
	out, err := j.c.kubectl(t.Context(), "", "get", "pod", "-l", j.pods(""), "-o", "json")
	var list struct {
		Items []struct {
			Spec struct {
				InitContainers []struct {
					Name            string
					SecurityContext struct {
						RunAsUser    int64
						Capabilities struct{ Add []string }
					}
				}
			}
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &list)
	}
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range list.Items[0].Spec.InitContainers {
		if s := c.SecurityContext; s.RunAsUser == 0 || len(s.Capabilities.Add) > 0 {
			t.Errorf("%s runs as user %d with %q", c.Name, s.RunAsUser, s.Capabilities.Add)
		}
	}
}

// TestRestricted asks the API server for the pods of all examples, of every kind, in a namespace
// that enforces the level restricted: as root, which the level refuses, as user 1000, with and
// without a group for files, and of a user that only the image knows.
func TestRestricted(t *testing.T) {
	c := asked(t, apiServer)
	c.apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: restricted-examples, labels: {pod-security.kubernetes.io/enforce: restricted}}}")
	there := c.in("restricted-examples")
	pods := 0
	for _, file := range append(find(t, 10, "../../examples/*.yaml"), find(t, 10, "../../examples/kinds/*.yaml")...) {
		if strings.Count(filepath.Base(file), ".") > 1 { // plans, prices and jobs of OpenPAI are no objects
			continue
		}
		t.Run(strings.TrimPrefix(file, "../../examples/"), func(t *testing.T) {
			for _, user := range []string{`"runAsUser":0`, `"runAsUser":1000`, `"runAsUser":1000,"fsGroup":2000`, `"supplementalGroups":[4000]`} {
				for _, pod := range injectedPods(t, c, read(t, file), user) {
					_, complaints, taken := there.said(t, pod)
					switch root := strings.HasSuffix(user, ":0"); {
					case root && (taken || !strings.Contains(complaints, "runAsUser=0")):
						t.Errorf("a trainer as root is taken (%v): %s", taken, complaints)
					case !root && !taken:
						t.Errorf("%s: refused: %s", user, complaints)
					}
					pods++
				}
			}
		})
	}
	if pods < 80 {
		t.Errorf("%d pods were tried, want 80 or more", pods)
	}
}

// injectedPods are the pods of a file's objects with stager in them, after they said their user.
// The API server need not know the objects' kinds.
func injectedPods(t *testing.T, c *cluster, file, user string) (pods []string) {
	t.Helper()
	for _, text := range strings.Split("\n"+file, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if o == nil {
			continue
		}
		secure(o, user)
		manifest, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var injected object
		if err := json.Unmarshal([]byte(c.inject(t, string(manifest), "--allow-unmatched")), &injected); err != nil {
			t.Fatal(err)
		}
		for _, template := range templatesIn(injected, "") {
			if strings.Contains(template, `"kind":"Pod"`) && strings.Contains(template, `"name":"stager`) {
				pods = append(pods, template)
			}
		}
	}
	return pods
}

// secure has all pod templates of an object say their user, and their own containers meet the
// level restricted.
func secure(v any, user string) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			secure(item, user)
		}
	case map[string]any:
		if spec, _ := v["spec"].(map[string]any); spec["containers"] != nil {
			if m, ok := v["metadata"].(map[string]any); ok {
				delete(m, "namespace")
			}
			spec["securityContext"] = json.RawMessage(fmt.Sprintf(`{"runAsNonRoot":%v,"seccompProfile":{"type":"RuntimeDefault"},%s}`, !strings.HasSuffix(user, ":0"), user))
			for _, list := range []string{"containers", "initContainers"} {
				all, _ := spec[list].([]any)
				for _, container := range all {
					container.(map[string]any)["securityContext"] = json.RawMessage(`{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}`)
				}
			}
		}
		for _, inner := range v {
			secure(inner, user)
		}
	}
}
