package jobspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// A pod may override the image and resources that the webhook sets for all pods. A RAM disk is
// added to the memory.
func TestImageAndResourcesOfAPod(t *testing.T) {
	for _, tt := range []struct {
		name, annotations                  string
		image                              string
		cpu, cpuLimit, memory, memoryLimit string // of the sidecar
	}{
		{"nothing is said", "", "stager:1", "100m", "4", "128Mi", "512Mi"},
		{"an image", `, stager.dev/image: "stager:2"`, "stager:2", "100m", "4", "128Mi", "512Mi"},
		{"requests", `, stager.dev/cpu: "2", stager.dev/memory: 256Mi`, "stager:1", "2", "4", "256Mi", "512Mi"},
		{"requests and limits", `, stager.dev/cpu: 6, stager.dev/cpu-limit: 8, stager.dev/memory: 1Gi, stager.dev/memory-limit: 2Gi`, "stager:1", "6", "8", "1Gi", "2Gi"},
		{"beside a RAM disk", `, stager.dev/memory-limit: 1Gi, stager.dev/in.w: "s3://b/w/ -> /w ? mode=window&size=1Gi&medium=memory"`, "stager:1", "100m", "4", "1268Mi", "2164Mi"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			result, err := Inject([]byte(job(saves+tt.annotations, "", "")), Options{Image: "stager:1"})
			if err != nil {
				t.Fatal(err)
			}
			var object struct {
				Spec struct{ Template corev1.PodTemplateSpec }
			}
			if err := yaml.Unmarshal(result.Output, &object); err != nil {
				t.Fatal(err)
			}
			c := object.Spec.Template.Spec.InitContainers[0]
			r := c.Resources
			got := [5]string{c.Image, r.Requests.Cpu().String(), r.Limits.Cpu().String(), r.Requests.Memory().String(), r.Limits.Memory().String()}
			if want := [5]string{tt.image, tt.cpu, tt.cpuLimit, tt.memory, tt.memoryLimit}; got != want {
				t.Errorf("the sidecar has %q, want %q", got, want)
			}
		})
	}
}

func TestMillicoresAreWrittenAsKubernetesWritesThem(t *testing.T) {
	for _, n := range []int64{-1000, -1, 0, 1, 10, 100, 999, 1000, 1001, 1500, 4000, 12000, 999_000, 999_999, 1_000_000, 1_000_001, 20_000_000} {
		if got, want := milli(n), resource.NewMilliQuantity(n, resource.DecimalSI).String(); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
