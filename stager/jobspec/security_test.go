package jobspec

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Covers every way to define a pod's user, and every level. Injected containers run as the
// trainer's user if it is known. They meet the Restricted level unless the pod itself does not.
// They have privileges only if the pod requests them.
func TestUserOfStager(t *testing.T) {
	const (
		rootless = `securityContext: {runAsUser: 1000}`
		group    = `securityContext: {runAsUser: 1000, runAsGroup: 3000, fsGroup: 2000}`
	)
	for _, tt := range []struct {
		name, pod, container, annotation string
		level                            string
		uid, gid                         int64 // gid -1: not set
		fsGroup                          int64 // 0: none
		add                              string
		umask                            bool // of the wrapped command
	}{
		{name: "nothing is said", uid: 65532, gid: 65532, fsGroup: 65532, umask: true},
		{name: "a group of files", pod: "securityContext: {fsGroup: 2000}", uid: 65532, gid: 65532, fsGroup: 2000, umask: true},
		{name: "a group", pod: "securityContext: {runAsGroup: 3000}", uid: 65532, gid: 3000, fsGroup: 65532, umask: true},
		{name: "not root", pod: "securityContext: {runAsNonRoot: true}", uid: 65532, gid: 65532, fsGroup: 65532, umask: true},
		{name: "the pod's user", pod: rootless, uid: 1000, gid: -1},
		{name: "the pod's user and groups", pod: group, uid: 1000, gid: 3000, fsGroup: 2000},
		{name: "the container's user", pod: group, container: "securityContext: {runAsUser: 1001}", uid: 1001, gid: 3000, fsGroup: 2000},
		{name: "root", pod: "securityContext: {runAsUser: 0}", uid: 0, gid: -1},
		{name: "privileges", annotation: PrivilegesFiles, uid: 0, gid: -1, add: "DAC_READ_SEARCH FOWNER"},
		{name: "privileges beside a user", pod: rootless, annotation: PrivilegesFiles, uid: 0, gid: -1, add: "DAC_READ_SEARCH FOWNER"},
		{name: "privileges at baseline", level: Baseline, annotation: PrivilegesFiles, uid: 0, gid: -1, add: "DAC_OVERRIDE"},
		{name: "a level alone", level: Restricted, uid: 65532, gid: 65532, fsGroup: 65532, umask: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			annotations := train + ", " + saves
			if tt.annotation != "" {
				annotations += ", " + AnnotationPrivileges + ": " + tt.annotation
			}
			result, err := Inject([]byte(job(annotations, "      "+tt.pod, "        command: [train]\n        "+tt.container)), Options{PodSecurity: tt.level})
			if err != nil {
				t.Fatal(err)
			}
			var object struct {
				Spec struct{ Template corev1.PodTemplateSpec }
			}
			if err := yaml.UnmarshalStrict(result.Output, &struct {
				APIVersion, Kind string
				Metadata         any
				Spec             any
			}{}); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(result.Output, &object); err != nil {
				t.Fatal(err)
			}
			spec := object.Spec.Template.Spec
			if len(spec.InitContainers) != 3 {
				t.Fatalf("%d init containers, want 3", len(spec.InitContainers))
			}
			for _, c := range spec.InitContainers {
				got := c.SecurityContext
				var add []string
				for _, name := range got.Capabilities.Add {
					add = append(add, string(name))
				}
				gid := int64(-1)
				if got.RunAsGroup != nil {
					gid = *got.RunAsGroup
				}
				if *got.RunAsUser != tt.uid || gid != tt.gid || strings.Join(add, " ") != tt.add {
					t.Errorf("%s runs as %d:%d with %q, want %d:%d with %q", c.Name, *got.RunAsUser, gid, add, tt.uid, tt.gid, tt.add)
				}
				if fault := restricted(got); fault != "" && tt.uid != 0 {
					t.Errorf("%s is not restricted: %s", c.Name, fault)
				}
				if *got.RunAsNonRoot != (tt.uid != 0) {
					t.Errorf("%s has runAsNonRoot %v as user %d", c.Name, *got.RunAsNonRoot, tt.uid)
				}
			}
			fsGroup := int64(0)
			if pod := spec.SecurityContext; pod != nil && pod.FSGroup != nil {
				fsGroup = *pod.FSGroup
			}
			if fsGroup != tt.fsGroup {
				t.Errorf("fsGroup is %d, want %d", fsGroup, tt.fsGroup)
			}
			if command := fmt.Sprint(spec.Containers[0].Command); strings.Contains(command, "--share-files") != tt.umask {
				t.Errorf("the command is %s, want --share-files: %v", command, tt.umask)
			}
		})
	}
}

// restricted returns the violation of the Restricted Pod Security level in a container, or "".
func restricted(c *corev1.SecurityContext) string {
	switch {
	case c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation:
		return "it may gain privileges"
	case len(c.Capabilities.Drop) != 1 || c.Capabilities.Drop[0] != "ALL" || len(c.Capabilities.Add) > 0:
		return "it has capabilities"
	case c.SeccompProfile == nil || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
		return "it has no seccomp profile"
	case c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem:
		return "its root file system can be written" // stricter than the standard
	case c.RunAsNonRoot == nil || !*c.RunAsNonRoot:
		return "it may be root"
	}
	return ""
}
