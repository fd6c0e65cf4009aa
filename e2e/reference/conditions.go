package reference

// conditions are what the fields of a group require of each other, by the path of the group. Each
// corresponds to a check of package plan.
var conditions = map[string]object{
	"spec": {"anyOf": []object{
		{"required": []string{"inputs"}, "properties": object{"inputs": object{"minItems": 1}}},
		{"required": []string{"outputs"}, "properties": object{"outputs": object{"minItems": 1}}},
	}},
	"spec.shard": all(
		when(is("by", "explicit"), object{"required": []string{"index", "count"}}, object{"properties": object{"index": empty, "count": empty}}),
	),
	"spec.volumes[]": all(
		when(is("medium", "memory"), object{"required": []string{"size"}}, nil),
	),
	"spec.inputs[]": all(
		object{"oneOf": []object{{"required": []string{"source"}}, {"required": []string{"sources"}}}},
		when(is("mode", "window"), object{"required": []string{"window"}}, object{"properties": object{
			"window": false,
			"index":  empty,
			"order":  object{"properties": object{"by": object{"enum": []string{"name", "shuffle"}}, "epochs": object{"const": 1}, "equalize": empty}},
		}}),
		when(is("layout", "hf-cache"), object{"required": []string{"source"}, "properties": object{
			"source": object{"pattern": "^hf://"}, "mode": object{"const": "prefetch"}, "unpack": object{"const": "none"},
		}}, nil),
		when(object{"required": []string{"sources"}},
			object{"required": []string{"order"}, "properties": object{"index": empty, "order": is("by", "weighted")}},
			object{"properties": object{"order": object{"not": is("by", "weighted")}}}),
	),
	"spec.inputs[].window": all(
		when(is("release", "rolling"), object{"required": []string{"minAge"}}, object{"properties": object{"minAge": zeroDuration}}),
		when(is("items", "bundles"), object{"required": []string{"bundle"}}, object{"properties": object{"bundle": zeroSize}}),
		when(is("release", "rolling", "never"), object{"properties": object{"reuse": empty}}, nil),
		when(is("release", "unlink", "rolling", "never"), object{"properties": object{
			"leaseTimeout": zeroDuration, "anyOrder": object{"const": false}, "groups": object{"const": 0},
		}}, nil),
	),
	"spec.inputs[].order": all(
		when(is("by", "list"), object{"required": []string{"list"}}, object{"properties": object{"list": empty}}),
		when(is("by", "block"), object{"required": []string{"block"}}, object{"properties": object{"block": object{"const": 0}}}),
		when(is("by", "balanced"), object{}, object{"properties": object{"candidates": object{"const": 0}, "over": object{"const": 0}}}),
		when(is("by", "weighted"), object{}, object{"properties": object{"within": empty}}),
	),
	"spec.outputs[]": all(
		when(is("commit", "none"), object{"properties": object{
			"nodes": empty, "step": empty, "hold": false, "keep": object{"properties": object{"last": object{"const": 0}}},
		}}, nil),
		when(object{"required": []string{"when"}, "properties": object{"when": object{"contains": object{"const": "interval"}}}},
			object{"required": []string{"interval"}}, object{"properties": object{"interval": zeroDuration}}),
		when(is("nodes", "all"), object{"properties": object{"step": object{"not": object{"const": "time"}}}}, nil),
		when(object{"required": []string{"minBandwidth"}, "properties": object{"minBandwidth": object{"not": zeroSize}}},
			object{"required": []string{"volume"}, "properties": object{"deadline": false}}, nil),
	),
	"spec.outputs[].keep": all(
		when(positive("every"), positive("last"), nil),
		when(positive("best"), object{"allOf": []object{positive("last"), {"required": []string{"metric"}}}}, object{"properties": object{"metric": empty}}),
	),
}

// Values that are the same as none.
var (
	empty        = object{"const": ""}
	zeroSize     = object{"enum": []any{"", "0", 0}}
	zeroDuration = object{"enum": []any{"0", "0s", 0}}
)

// all joins conditions.
func all(conditions ...object) object { return object{"allOf": conditions} }

// when returns the condition that what matches cond also matches then, and all else matches other;
// nil accepts everything.
func when(cond, then, other object) object {
	c := object{"if": cond, "then": then}
	if other != nil {
		c["else"] = other
	}
	return c
}

// is matches a group in which key has one of the values.
func is(key string, values ...string) object {
	return object{"required": []string{key}, "properties": object{key: object{"enum": values}}}
}

// positive matches a group in which key is a number above 0.
func positive(key string) object {
	return object{"required": []string{key}, "properties": object{key: object{"minimum": 1}}}
}
