package jobspec

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// typed are the kinds with Go types in this test. Only the pod templates of other kinds are
// checked.
var typed = map[string]func() any{
	"Pod":         func() any { return new(corev1.Pod) },
	"Job":         func() any { return new(batchv1.Job) },
	"CronJob":     func() any { return new(batchv1.CronJob) },
	"Deployment":  func() any { return new(appsv1.Deployment) },
	"StatefulSet": func() any { return new(appsv1.StatefulSet) },
	"DaemonSet":   func() any { return new(appsv1.DaemonSet) },
}

// decodes checks that all objects of a file match Kubernetes' own types, without unknown fields.
func decodes(t *testing.T, file []byte) {
	t.Helper()
	for _, d := range yamledit.Split(file) {
		if err := yamledit.Parse(d); err != nil {
			t.Fatal(err)
		}
		for _, o := range objectsIn(d) {
			o.findTemplates("")
			if into := typed[o.kind]; into != nil && o.apiVersion != "batch.volcano.sh/v1alpha1" {
				strict(t, o.String(), o.root, into())
			}
			for _, tpl := range o.templates {
				if !slices.Equal(tpl.spec, inTemplate) {
					strict(t, o.String()+" "+tpl.Path(), tpl.pod(), new(corev1.PodSpec))
				} else if len(tpl.path) > 0 {
					strict(t, o.String()+" "+tpl.Path(), tpl.node, new(corev1.PodTemplateSpec))
				}
			}
		}
	}
}

func (o *object) String() string { return o.kind + "/" + o.name }

func strict(t *testing.T, name string, n *yamledit.Node, into any) {
	t.Helper()
	m, _ := decode(n).(yamledit.Map)
	text := yamledit.Marshal(m)
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Errorf("%s: %v\n%s", name, err, text)
	}
}
