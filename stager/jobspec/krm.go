package jobspec

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// KRM is a function on Kubernetes resources for kustomize and kpt. It reads a ResourceList, injects
// its items and returns it. The functionConfig is a StagePlan for items that name no plan, or a
// ConfigMap with options. Warnings and faults are results in the list. failed reports that there
// are faults and the items are unchanged. KRM returns an error only if list is not a ResourceList.
func KRM(list []byte, opts Options) (out []byte, failed bool, err error) {
	docs := yamledit.Split(list)
	d := docs[0]
	if err := yamledit.Parse(d); err != nil {
		return nil, false, Faults{unreadable(err)}
	}
	if len(docs) > 1 || d.Root.Get("kind").Text() != "ResourceList" {
		return nil, false, Faults{{Text: "this is not a ResourceList, which kustomize and kpt send; use stager inject for other files"}}
	}
	if fault := catch(func() { opts.configure(d.Root.Get("functionConfig")) }); fault != nil {
		fault.Object = "functionConfig"
		return withResults(list, []any{resultOf("error", fault.String(), "")}), true, nil
	}
	result, err := Inject(list, opts)
	var faults Faults
	if errors.As(err, &faults) {
		var results []any
		for _, f := range faults {
			results = append(results, resultOf("error", f.Text, f.Object))
		}
		return withResults(list, results), true, nil
	}
	var results []any
	for _, o := range result.Objects {
		for _, w := range slices.Concat(o.Unmatched, o.Warnings) {
			results = append(results, resultOf("warning", w, o.String()))
		}
	}
	return withResults(result.Output, results), false, nil
}

// resultOf returns a result in the format of the KRM functions specification.
func resultOf(severity, text, object string) yamledit.Map {
	r := yamledit.Map{{Key: "message", Value: text}, {Key: "severity", Value: severity}}
	if kind, name, ok := strings.Cut(object, "/"); ok {
		r = append(r, yamledit.Entry{Key: "resourceRef", Value: yamledit.Map{{Key: "kind", Value: kind}, {Key: "name", Value: name}}})
	}
	return r
}

// withResults adds results to a list that can be parsed.
func withResults(list []byte, results []any) []byte {
	if len(results) == 0 {
		return list
	}
	d := yamledit.Split(list)[0]
	if yamledit.Parse(d) != nil {
		return list
	}
	var add branch
	add.put(at("results"), results)
	a := applier{edit: yamledit.NewEditor(d)}
	if catch(func() { a.apply(d.Root, &add, nil) }) != nil {
		return list
	}
	return a.edit.Text()
}

// configure applies a functionConfig to the options.
func (o *Options) configure(config *yamledit.Node) {
	if config.IsNull() {
		return
	}
	switch kind := config.Get("kind").Text(); kind {
	case plan.Kind:
		text, _ := decode(config).(yamledit.Map)
		for i := range text {
			if text[i].Key == "metadata" { // drops the annotations for kustomize and kpt
				text[i].Value = yamledit.Map{{Key: "name", Value: config.Get("metadata", "name").Text()}}
			}
		}
		o.Plan = []byte(yamledit.Marshal(text))
	case "ConfigMap":
		texts := map[string]*string{
			"image": &o.Image, "imagePullPolicy": &o.ImagePullPolicy, "listen": &o.Listen, "path": &o.Path,
			"finalize": &o.Finalize, "gate": &o.Gate, "podSecurity": &o.PodSecurity, "kubernetes": &o.Kubernetes,
		}
		switches := map[string]*bool{"adjustMemory": &o.AdjustMemory, "jobPolicies": &o.JobPolicies}
		data := config.Get("data")
		if data == nil {
			return
		}
		for _, p := range data.Pairs {
			key, value := p.Key.Text(), p.Value.Text()
			switch {
			case key == planKey:
				o.Plan = []byte(value)
			case texts[key] != nil:
				*texts[key] = value
			case switches[key] != nil && (value == "true" || value == "false"):
				*switches[key] = value == "true"
			case switches[key] != nil:
				refuse(p.Value, "%s is %q; write \"true\" or \"false\"", key, value)
			default:
				known := slices.Sorted(maps.Keys(texts))
				refuse(p.Key, "%q is not known; known are %s, %s", key, planKey, strings.Join(append(known, sortedKeys(switches)...), ", "))
			}
		}
	default:
		refuse(config, "a %s cannot configure this function; use a %s, or a ConfigMap with options", kind, plan.Kind)
	}
}
