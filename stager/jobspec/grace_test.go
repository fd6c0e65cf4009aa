package jobspec

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Every pod with an output used to get a grace period of 630 s, whatever the size of its outputs.
func TestGraceIsWhatTheLastUploadNeeds(t *testing.T) {
	const out = `/out -> s3://b/c/`
	for _, tt := range []struct {
		name, annotations, spec string
		opts                    Options
		want                    int64
		warned                  string // "": no warning about the grace period
	}{
		{"nothing is known", `stager.dev/out.o: "` + out + `"`, "", Options{}, 630, ""},
		{"the size alone is known", `stager.dev/out.o: "` + out + ` ? size=20Gi"`, "", Options{}, 630, ""},
		{"a deadline is stated", `stager.dev/out.o: "` + out + ` ? size=20Gi&deadline=2m"`, "", Options{}, 150, ""},
		{"size and bandwidth are known", `stager.dev/out.o: "` + out + ` ? size=20Gi&minBandwidth=200Mi"`, "", Options{}, 103 + 10 + 30, ""},
		{"the settle time counts", `stager.dev/out.o: "` + out + ` ? size=20Gi&minBandwidth=200Mi&quietPeriod=1m"`, "", Options{}, 103 + 60 + 30, ""},
		{"it takes longer than usual", `stager.dev/out.o: "` + out + ` ? size=200Gi&minBandwidth=100Mi"`, "", Options{}, 2048 + 10 + 30, ""},
		{"it takes a moment", `stager.dev/out.o: "` + out + ` ? size=1Gi&minBandwidth=1Gi"`, "", Options{}, 60 + 30, ""},
		{"the longest of several", `stager.dev/out.o: "` + out + ` ? size=20Gi&minBandwidth=200Mi", stager.dev/out.p: "/log -> s3://b/d/ ? size=1Gi&minBandwidth=5Mi"`, "", Options{}, 205 + 10 + 30, ""},
		{"one of several is not known", `stager.dev/out.o: "` + out + ` ? size=20Gi&minBandwidth=200Mi", stager.dev/out.p: "/log -> s3://b/d/"`, "", Options{}, 630, ""},
		{"the plan's limit is lower", `stager.dev/plan-yaml: "{apiVersion: stager.dev/v1alpha1, kind: StagePlan, metadata: {name: x}, spec: {limits: {bandwidth: 100Mi}}}", stager.dev/out.o: "` + out + ` ? size=20Gi&minBandwidth=200Mi"`, "", Options{}, 205 + 10 + 30, ""},
		{"the pod has more", `stager.dev/out.o: "` + out + ` ? deadline=1m"`, "      terminationGracePeriodSeconds: 91", Options{}, 91, ""},
		{"the pod has as much", `stager.dev/out.o: "` + out + ` ? deadline=1m"`, "      terminationGracePeriodSeconds: 90", Options{}, 90, ""},
		{"the pod has less", `stager.dev/out.o: "` + out + ` ? deadline=1m"`, "      terminationGracePeriodSeconds: 89", Options{}, 90, "terminationGracePeriodSeconds was 89 and is now 90: the last upload may take 1m0s"},
		{"the usual of the API server", `stager.dev/out.o: "` + out + ` ? deadline=1m"`, "      terminationGracePeriodSeconds: 30", Options{Admission: true}, 90, ""},
		{"no output", train, "", Options{}, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			result, err := Inject([]byte(job(tt.annotations, tt.spec, "        command: [train]")), tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Spec struct{ Template corev1.PodTemplateSpec }
			}
			if err := yaml.Unmarshal(result.Output, &got); err != nil {
				t.Fatal(err)
			}
			seconds := int64(0)
			if p := got.Spec.Template.Spec.TerminationGracePeriodSeconds; p != nil {
				seconds = *p
			}
			if seconds != tt.want {
				t.Errorf("got a grace period of %d s, want %d", seconds, tt.want)
			}
			warned := ""
			for _, w := range result.Objects[0].Warnings {
				if strings.Contains(w, "terminationGracePeriodSeconds") {
					warned = w
				}
			}
			if tt.warned == "" && warned != "" || !strings.Contains(warned, tt.warned) {
				t.Errorf("warned %q, want %q", warned, tt.warned)
			}
		})
	}
}

// A shell that is the first process of its container ignores SIGTERM unless it traps it.
func TestShellsAsTheFirstProcessAreWarnedOf(t *testing.T) {
	const side = saves + `, stager.dev/finalize: sidecar`
	for _, tt := range []struct {
		name, annotations, spec, command string
		want                             bool
	}{
		{"sh", side, "", `[sh, -c, "a; b"]`, true},
		{"/bin/bash", side, "", `[/bin/bash, -c, a]`, true},
		{"no shell", side, "", `[python, train.py]`, false},
		{"wrapped", saves, "", `[sh, -c, "a; b"]`, false},
		{"stager runs it", saves + `, stager.dev/finalize: run`, "", `[sh, -c, "a; b"]`, false},
		{"no output", train, "", `[sh, -c, "a; b"]`, false},
		{"pause is the first process", side, "      shareProcessNamespace: true", `[sh, -c, "a; b"]`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			result, err := Inject([]byte(job(tt.annotations, tt.spec, "        command: "+tt.command)), Options{})
			if err != nil {
				t.Fatal(err)
			}
			warned := strings.Join(result.Objects[0].Warnings, "\n")
			if got := strings.Contains(warned, "ignores SIGTERM as the first process of a container unless it traps it"); got != tt.want {
				t.Errorf("warned %q, want a warning of the shell: %v", warned, tt.want)
			}
		})
	}
}
