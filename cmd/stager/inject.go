package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/backends/all"
	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// imaging has the flags of all commands that generate containers of stager.
type imaging struct {
	Image           string            `help:"Image of stager's containers, such as registry.example.com/stager:0.1.0. Default: that of the release." placeholder:"IMAGE"`
	ImagePullPolicy string            `help:"Pull policy: Always, IfNotPresent or Never." enum:",Always,IfNotPresent,Never" default:""`
	ContainerEnv    map[string]string `help:"Environment variable for stager's containers, such as HTTPS_PROXY=http://proxy:3128. Repeatable." placeholder:"NAME=VALUE" mapsep:"none"`
}

// reference returns the image of the flag, or else that of the release. It returns "" if neither is
// set; then jobspec uses its own default, and noImage warns.
func (i imaging) reference() string { return cmp.Or(i.Image, image) }

// warnNoImage logs that no image is set.
func warnNoImage(log *slog.Logger) {
	log.Warn("no image is set: clusters resolve the unqualified name to an image of other authors on a public registry, set --image", "image", jobspec.DefaultImage)
}

// watchImage notes whether the work with opts uses the default image. The returned function passes
// the error of the work on, and warns if it succeeded with that image.
func watchImage(opts *jobspec.Options, log *slog.Logger) (done func(error) error) {
	unset := false
	opts.NoImage = func() { unset = true }
	return func(err error) error {
		if unset && err == nil {
			warnNoImage(log)
		}
		return err
	}
}

// pods has the flags of all commands that add stager to pods.
type pods struct {
	imaging
	PodListen    string `help:"Address for probes and metrics in the pod, such as :9090." placeholder:"ADDR"`
	Finalize     string `help:"How to save outputs, unless annotations set it: sidecar; wrap (the job's container exits after the sidecar has saved); run (stager runs the command); auto (wrap if the command is known, else sidecar)." enum:"auto,sidecar,wrap,run" default:"auto"`
	Gate         string `help:"What delays the job until its data are ready: init, startup or none. Default: startup if a window has minReady, else init." enum:",init,startup,none" default:""`
	AdjustMemory bool   `help:"Raise the memory limit of the job's container by its RAM disk."`
	PodSecurity  string `help:"Pod Security level that the namespace enforces: privileged, baseline or restricted." enum:"privileged,baseline,restricted" default:"privileged"`
	Kubernetes   string `help:"Kubernetes version, such as 1.31, to warn about missing features." placeholder:"VERSION"`
}

func (p pods) options() jobspec.Options {
	return jobspec.Options{
		CheckURL: all.Registry().Check, CheckDestination: all.Registry().CheckDestination,
		Image: p.reference(), ImagePullPolicy: p.ImagePullPolicy, Env: p.ContainerEnv, Listen: p.PodListen,
		Finalize: p.Finalize, Gate: p.Gate, AdjustMemory: p.AdjustMemory, PodSecurity: p.PodSecurity, Kubernetes: p.Kubernetes,
	}
}

// injecting has the flags of all commands that add stager to manifests.
type injecting struct {
	pods
	Path        string `help:"Path of the pod templates, such as spec.tasks[].template. Default: found by their structure." placeholder:"PATH"`
	JobPolicies bool   `help:"Add a podFailurePolicy for stager's exit codes and podReplacementPolicy: Failed to Jobs without one."`
}

func (i injecting) options() jobspec.Options {
	opts := i.pods.options()
	opts.Path, opts.JobPolicies = i.Path, i.JobPolicies
	return opts
}

// manifests selects the files that a command reads, and where the results go.
type manifests struct {
	rehearsing
	Files  []string `short:"f" name:"filename" help:"Manifest file, directory of .yaml, .yml and .json files, or - for standard input. Repeatable." placeholder:"FILE" default:"-" sep:"none"`
	Format string   `short:"o" name:"output-format" help:"Output format: yaml keeps the formatting of the files, json prints a List, diff prints only the changes." enum:"yaml,json,diff" default:"yaml"`
	Write  bool     `short:"w" help:"Edit the files in place and print nothing."`
}

// manifest is one of these files.
type manifest struct {
	name string // "standard input", or the path
	path string // "" for standard input
	text []byte
}

// read reads all files, in order.
func (m manifests) read() (all []manifest, err error) {
	for _, name := range m.Files {
		if name == "-" {
			text, err := io.ReadAll(os.Stdin)
			if err != nil {
				return nil, err
			}
			all = append(all, manifest{"standard input", "", text})
			continue
		}
		err := filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			named := path == name || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
			if d.IsDir() || !named {
				return nil
			}
			text, err := os.ReadFile(path)
			all = append(all, manifest{path, path, text})
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &usageError{fmt.Errorf("%s does not exist", name)}
		}
		if err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, &usageError{fmt.Errorf("no .yaml, .yml or .json in %s", strings.Join(m.Files, ", "))}
	}
	return all, nil
}

// change runs work on every file and writes the results. It writes nothing if a file is refused.
// With refuseUnmatched it also writes nothing if annotations or labels for stager have no effect.
func (m manifests) change(files []manifest, log *slog.Logger, refuseUnmatched bool, work func([]byte) (*jobspec.Result, error)) error {
	results := make([]*jobspec.Result, len(files))
	var refused []error
	for i, f := range files {
		r, err := work(f.text)
		if err != nil {
			refused = append(refused, &manifestError{f.name, err})
			continue
		}
		results[i] = r
	}
	if len(refused) > 0 {
		return errors.Join(refused...)
	}
	unmatched := false
	for i, f := range files {
		tell(log, f.name, results[i])
		for _, o := range results[i].Objects {
			unmatched = unmatched || len(o.Unmatched) > 0
		}
	}
	switch {
	case unmatched && refuseUnmatched:
		log.Error("nothing written: correct what has no effect, or use --allow-unmatched")
		return exitError(exitData)
	case m.Write:
		return m.rewrite(files, results)
	case m.Format == "diff":
		for i, f := range files {
			_, _ = os.Stdout.Write(diff.Diff(f.name, f.text, f.name+" (stager)", results[i].Output))
		}
		return nil
	case m.Format == "json":
		return printJSON(results)
	}
	for i, r := range results {
		if i > 0 && !strings.HasPrefix(string(r.Output), "---") {
			fmt.Println("---")
		}
		_, _ = os.Stdout.Write(r.Output)
		if i+1 < len(results) && !strings.HasSuffix(string(r.Output), "\n") {
			fmt.Println()
		}
	}
	return nil
}

// manifestError is the error for one file.
type manifestError struct {
	name string
	err  error
}

func (e *manifestError) Error() string {
	return e.name + ":\n" + e.err.Error()
}
func (e *manifestError) Unwrap() error { return e.err }

// manyObjects limits how many unchanged objects are named.
const manyObjects = 20

// tell logs what was done, and warnings.
func tell(log *slog.Logger, name string, r *jobspec.Result) {
	left := 0
	for _, o := range r.Objects {
		if o.Kind == "" {
			continue
		}
		if o.Action == jobspec.LeftAlone && len(r.Objects) > manyObjects && len(o.Unmatched) == 0 {
			left++
			continue
		}
		said := []any{"file", name, "object", o.String()}
		if o.Template != "" {
			said = append(said, "template", o.Template)
		}
		if o.Reason != "" {
			said = append(said, "because", o.Reason)
		}
		log.Info(string(o.Action), said...)
		for _, w := range slices.Concat(o.Unmatched, o.Warnings) {
			log.Warn(w, "file", name, "object", o.String())
		}
	}
	if left > 0 {
		log.Info(string(jobspec.LeftAlone), "file", name, "objects", left, "because", "no data requested, or no pod template")
	}
}

// rewrite replaces the files with the results, each file atomically. With DryRun it prints which.
func (m manifests) rewrite(files []manifest, results []*jobspec.Result) error {
	for i, f := range files {
		if f.path == "" {
			return &usageError{errors.New("--write cannot edit standard input; remove it")}
		}
		if string(f.text) == string(results[i].Output) {
			continue
		}
		if m.DryRun {
			fmt.Println("would change " + printable(f.path))
			continue
		}
		path, err := filepath.EvalSymlinks(f.path)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if err := replaceFile(path, info.Mode().Perm(), bytes.NewReader(results[i].Output)); err != nil {
			return err
		}
	}
	return nil
}

// printJSON prints a single object as JSON, or several as a List.
func printJSON(results []*jobspec.Result) error {
	var objects []string
	for _, r := range results {
		for _, d := range yamledit.Split(r.Output) {
			text, err := yaml.YAMLToJSON(d.Text)
			if err != nil {
				return err
			}
			if string(text) != "null" {
				objects = append(objects, string(text))
			}
		}
	}
	if len(objects) == 1 {
		fmt.Println(objects[0])
		return nil
	}
	fmt.Printf("{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[%s]}\n", strings.Join(objects, ","))
	return nil
}

type injectCmd struct {
	manifests
	injecting
	Plan  string `help:"StagePlan for pod templates that name none." placeholder:"PLAN" env:"STAGER_INJECT_PLAN"`
	Check bool   `help:"Print files that are out of date, and exit with 1 if there are any."`

	AllowUnmatched bool `help:"Inject although some annotations or labels have no effect. Default: warn and exit with 65."`
}

// Help returns the detailed help.
func (injectCmd) Help() string {
	return `Pod templates request data with annotations, or --plan defines it for those without:

    metadata:
      annotations:
        stager.dev/in.train: "s3://b/train/ -> /data/train ? mode=window&size=80Gi"
        stager.dev/out.ckpt: "/out -> s3://b/runs/{job}/ ? keep=3"

Updates what an earlier inject added. Comments and formatting are preserved, and "stager uninject" restores every byte.

    stager inject -f job.yaml | kubectl apply -f -
    stager inject -f manifests/ --plan plan.yaml -o diff
    stager inject -f manifests/ --check
    kubectl create job x --image=trainer --dry-run=client -o yaml | stager inject --plan plan.yaml`
}

func (c injectCmd) Run(log *slog.Logger) error {
	files, err := c.read()
	if err != nil {
		return err
	}
	opts := c.options()
	done := watchImage(&opts, log)
	if c.Plan != "" {
		if opts.Plan, err = os.ReadFile(c.Plan); errors.Is(err, fs.ErrNotExist) {
			return &usageError{fmt.Errorf("the plan %s does not exist", c.Plan)}
		} else if err != nil {
			return err
		}
	}
	var texts [][]byte
	for _, f := range files {
		texts = append(texts, f.text)
	}
	opts.ConfigMap = jobspec.ConfigMaps(texts...)
	if c.Check {
		return c.check(files, opts)
	}
	return done(c.change(files, log, !c.AllowUnmatched, func(text []byte) (*jobspec.Result, error) { return jobspec.Inject(text, opts) }))
}

// check reports what is out of date.
func (c injectCmd) check(files []manifest, opts jobspec.Options) error {
	stale := false
	for _, f := range files {
		objects, err := jobspec.Check(f.text, opts)
		if err != nil {
			return &manifestError{f.name, err}
		}
		for _, o := range objects {
			stale = true
			fmt.Printf("%s:%d: %s %s is out of date; run stager inject -w -f %s\n", f.name, o.Line, o, o.Template, f.name)
		}
	}
	if stale {
		return exitError(exitStale)
	}
	return nil
}

type uninjectCmd struct {
	manifests
}

// Help returns the detailed help.
func (uninjectCmd) Help() string {
	return `Restores every byte from before inject and keeps later changes by others. Files rewritten by another program, such as kubectl get -o yaml, are restored as objects. Refuses if the result is not certain.

    stager uninject -f job.yaml
    stager uninject -w -f manifests/`
}

func (c uninjectCmd) Run(log *slog.Logger) error {
	files, err := c.read()
	if err != nil {
		return err
	}
	return c.change(files, log, false, jobspec.Uninject)
}
