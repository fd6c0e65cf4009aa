package plan

import (
	"strings"
	"testing"
	"time"
)

// The default of a deadline follows from the size of the output's volume and the minimum bandwidth
// to its destination.
func TestDeadlineFollowsFromSizeAndBandwidth(t *testing.T) {
	for _, tt := range []struct {
		fields, volume, limits string
		want                   time.Duration
		fault                  string
	}{
		{"", "size: 20Gi", "", 10 * time.Minute, ""},
		{"deadline: 3m", "size: 20Gi", "", 3 * time.Minute, ""},
		{"minBandwidth: 200Mi", "size: 20Gi", "", 113 * time.Second, ""},
		{"minBandwidth: 200Mi, quietPeriod: 0s", "size: 20Gi", "", 103 * time.Second, ""},
		{"minBandwidth: 200Mi", "size: 20Gi", "bandwidth: 100Mi", 215 * time.Second, ""},
		{"minBandwidth: 200Mi", "size: 20Gi", "bandwidth: 400Mi", 113 * time.Second, ""},
		{"", "size: 20Gi", "bandwidth: 400Mi", 10 * time.Minute, ""}, // a limit is not a guarantee
		{"minBandwidth: 1Gi", "size: 50Gi", "", time.Minute, ""},
		{"minBandwidth: 1Gi", "size: 51Gi", "", 61 * time.Second, ""},
		{"minBandwidth: 1", "size: 1Ei", "", 1_000_000_010 * time.Second, ""}, // no overflow
		{"minBandwidth: 1Gi, deadline: 3m", "size: 50Gi", "", 0, "spec.outputs[0].minBandwidth: it sets the output's deadline, but deadline: 3m0s is set too; keep one"},
		{"minBandwidth: 1Gi", "medium: 'existing:v'", "", 0, "spec.outputs[0].minBandwidth: it derives the output's deadline from the size of its volume, which is not set; set the size, or use deadline instead"},
	} {
		text := "{apiVersion: stager.dev/v1alpha1, kind: StagePlan, metadata: {name: x}, spec: {volumes: [{name: v, " + tt.volume + "}], limits: {" + tt.limits +
			"}, outputs: [{name: o, path: /out, volume: v, destination: 's3://b/c/', " + tt.fields + "}]}}"
		p, err := Parse([]byte(text), nil)
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s, %s: got %v, want %s", tt.fields, tt.volume, err, tt.fault)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Duration(p.Spec.Outputs[0].Deadline); got != tt.want {
			t.Errorf("%s, %s, %s: got a deadline of %s, want %s", tt.fields, tt.volume, tt.limits, got, tt.want)
		}
	}
}
