package kinds

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// schema is one of a CustomResourceDefinition, as far as its strict decoding goes.
type schema struct {
	Type                 string             `json:"type"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties *schemaOrBool      `json:"additionalProperties"`
	Items                *schema            `json:"items"`
	Required             []string           `json:"required"`
	Enum                 []any              `json:"enum"`
	Preserve             bool               `json:"x-kubernetes-preserve-unknown-fields"`
	Embedded             bool               `json:"x-kubernetes-embedded-resource"`
	IntOrString          bool               `json:"x-kubernetes-int-or-string"`

	// Of the schemas in testdata: what stands there is a type of Kubernetes.
	Is string `json:"x-is"`
}

type schemaOrBool struct {
	allows bool
	*schema
}

func (s *schemaOrBool) UnmarshalJSON(text []byte) error {
	if b, err := strconv.ParseBool(string(text)); err == nil {
		s.allows = b
		return nil
	}
	s.allows, s.schema = true, new(schema)
	return yaml.Unmarshal(text, s.schema)
}

// definition is a CustomResourceDefinition.
type definition struct {
	Kind string `json:"kind"`
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Name   string `json:"name"`
			Schema struct {
				OpenAPIV3Schema *schema `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// check returns what a schema does not take of a value.
func (s *schema) check(path string, v any) []string {
	if s.Is != "" {
		return isKubernetes(s.Is, path, v)
	}
	wrong := func(want string) []string { return []string{fmt.Sprintf("%s: %v is no %s", path, v, want)} }
	switch v := v.(type) {
	case nil:
		return nil // the API server drops it
	case map[string]any:
		if s.Type != "object" && !(s.Type == "" && s.Preserve) {
			return wrong(s.Type)
		}
		return s.checkObject(path, v)
	case []any:
		if s.Type != "array" {
			return wrong(s.Type)
		}
		var all []string
		for i, item := range v {
			all = append(all, s.Items.check(fmt.Sprintf("%s[%d]", path, i), item)...)
		}
		return all
	case string:
		if s.Type != "string" && !s.IntOrString {
			return wrong(s.Type)
		}
	case bool:
		if s.Type != "boolean" {
			return wrong(s.Type)
		}
	case float64:
		if s.Type != "number" && !(v == float64(int64(v)) && (s.Type == "integer" || s.IntOrString)) {
			return wrong(s.Type)
		}
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
		return wrong(fmt.Sprint("one of ", s.Enum))
	}
	return nil
}

func (s *schema) checkObject(path string, v map[string]any) (all []string) {
	for _, key := range s.Required {
		if v[key] == nil {
			all = append(all, fmt.Sprintf("%s: %s is missing", path, key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		here := path + "." + key
		switch {
		case path == "" && slices.Contains([]string{"apiVersion", "kind", "metadata"}, key):
		case s.Properties[key] != nil:
			all = append(all, s.Properties[key].check(here, v[key])...)
		case s.AdditionalProperties != nil && s.AdditionalProperties.allows:
			if s.AdditionalProperties.schema != nil {
				all = append(all, s.AdditionalProperties.check(here, v[key])...)
			}
		case !s.Preserve && !s.Embedded:
			all = append(all, here+" is not known")
		}
	}
	return all
}

// isKubernetes decodes a value strictly as one of Kubernetes' own types.
func isKubernetes(name, path string, v any) []string {
	into := map[string]any{"PodTemplateSpec": new(corev1.PodTemplateSpec), "PodSpec": new(corev1.PodSpec)}[name]
	text, err := yaml.Marshal(v)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		return []string{path + ": " + strings.ReplaceAll(err.Error(), "\n", " ")}
	}
	return nil
}
