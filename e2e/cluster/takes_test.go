package cluster

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// object is one of Kubernetes, as the API server has it.
type object map[string]any

// at is what stands at a path of keys, or nil.
func (o object) at(keys ...string) any {
	var v any = map[string]any(o)
	for _, key := range keys {
		group, _ := v.(map[string]any)
		v = group[key]
	}
	return v
}

// texts are the values of one key in a list of groups, such as the containers' names.
func texts(list any, key string) (all []string) {
	items, _ := list.([]any)
	for _, item := range items {
		group, _ := item.(map[string]any)
		text, _ := group[key].(string)
		all = append(all, text)
	}
	return all
}

// takes asks the API server whether it would take a manifest, in which a field that it
// does not know is an error, and returns what it would have then. Of a kind of others
// it knows little, so it is asked about the Jobs and pods in there, too.
func (c *cluster) takes(t *testing.T, manifest string) []object {
	t.Helper()
	all := c.creates(t, manifest)
	for _, o := range all {
		for _, inner := range templatesIn(o, "") {
			c.creates(t, inner)
		}
	}
	return all
}

func (c *cluster) creates(t *testing.T, manifest string) (all []object) {
	t.Helper()
	out, err := c.kubectl(t.Context(), manifest, "create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-")
	if err != nil {
		t.Errorf("%v\nfor\n%s", err, manifest)
	}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

// templatesIn are the pod templates of an object as Pods of a namespace, and the templates
// of Jobs as Jobs.
func templatesIn(v any, namespace string) (all []string) {
	switch v := v.(type) {
	case object:
		namespace, _ = v.at("metadata", "namespace").(string)
		if v["kind"] == "CustomResourceDefinition" {
			return nil
		}
		return templatesIn(map[string]any(v), namespace)
	case []any:
		for _, item := range v {
			all = append(all, templatesIn(item, namespace)...)
		}
	case map[string]any:
		spec, _ := v["spec"].(map[string]any)
		_, named := v["kind"]
		switch {
		case named: // the API server has seen it
		case spec["containers"] != nil:
			all = append(all, alone("v1", "Pod", namespace, v))
		case object(spec).at("template", "spec", "containers") != nil && spec["replicas"] == nil:
			all = append(all, alone("batch/v1", "Job", namespace, v))
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			all = append(all, templatesIn(v[key], namespace)...)
		}
	}
	return all
}

// alone is a template as an object of its own.
func alone(version, kind, namespace string, template map[string]any) string {
	metadata, _ := template["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = make(map[string]any)
	}
	metadata["name"] = "x"
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	template = maps.Clone(template)
	template["apiVersion"], template["kind"], template["metadata"] = version, kind, metadata
	text, _ := json.Marshal(template) // it came as JSON
	return string(text)
}

// stager runs the program as it is typed, and returns what it prints.
func (c *cluster) stager(t *testing.T, text string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.bin, "stager"), args...)
	cmd.Stdin = strings.NewReader(text)
	out, err := output(cmd)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return out
}

// inject puts stager into a manifest, as its user does.
func (c *cluster) inject(t *testing.T, manifest string, flags ...string) string {
	t.Helper()
	return c.stager(t, manifest, append([]string{"inject", "-q", "-f", "-"}, flags...)...)
}
