package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Vars maps placeholders, without braces, to their values. A missing name is unset.
type Vars map[string]string

// variables lists the environment variables behind each placeholder. The first one that is set is
// used; error messages name the first of the list.
var variables = []struct {
	name string
	env  []string
}{
	{"job", []string{"STAGER_JOB"}},
	{"namespace", []string{"STAGER_NAMESPACE"}},
	{"pod", []string{"STAGER_POD", "HOSTNAME"}},
	{"attempt", []string{"STAGER_ATTEMPT", "SLURM_RESTART_COUNT"}},
	{"index", []string{"STAGER_INDEX"}},
	{"count", []string{"STAGER_COUNT"}},
	{"role", []string{"STAGER_ROLE", "PAI_CURRENT_TASK_ROLE_NAME"}},
	{"user", []string{"STAGER_USER", "PAI_USER_NAME", "USER"}},
	{"date", []string{"STAGER_DATE"}},
}

// Vars reads the values of placeholders from the environment. By default job is the plan's name,
// attempt is 0, and date is the day of now in UTC. A job that may run past midnight or restart
// should set STAGER_DATE. node provides index and count; see [ShardSpec.Resolve].
func (p *StagePlan) Vars(node Shard, now time.Time, getenv func(string) string) Vars {
	vars := Vars{
		"job":     p.Metadata.Name,
		"attempt": "0",
		"date":    now.UTC().Format(time.DateOnly),
	}
	for _, v := range variables {
		for _, name := range v.env {
			if value := getenv(name); value != "" {
				vars[v.name] = value
				break
			}
		}
	}
	if node.Count > 0 {
		vars["index"], vars["count"] = strconv.Itoa(node.Index), strconv.Itoa(node.Count)
	}
	return vars
}

// Expand returns the plan with the placeholders of its URLs and paths replaced. Each value becomes
// one element of a path. Unsuitable characters are replaced and a part of the value's SHA-256 is
// appended, so that different values stay different. An unset placeholder is an [EnvError] that
// names the variable to set.
func (p *StagePlan) Expand(vars Vars) (*StagePlan, error) {
	out := *p
	out.Spec.Inputs = slices.Clone(p.Spec.Inputs)
	out.Spec.Outputs = slices.Clone(p.Spec.Outputs)
	r := newReport()
	for i := range out.Spec.Inputs {
		in := &out.Spec.Inputs[i]
		r.expand(place("inputs", i)+".source", &in.Source, vars)
		in.Sources = slices.Clone(in.Sources)
		for j := range in.Sources {
			at := fmt.Sprintf("%s.sources[%d]", place("inputs", i), j)
			r.expand(at+".source", &in.Sources[j].Source, vars)
			r.expand(at+".index", &in.Sources[j].Index, vars)
		}
		r.expand(place("inputs", i)+".path", &in.Path, vars)
		r.expand(place("inputs", i)+".index", &in.Index, vars)
		r.expand(place("inputs", i)+".order.list", &in.Order.List, vars)
	}
	for i := range out.Spec.Outputs {
		o := &out.Spec.Outputs[i]
		r.expand(place("outputs", i)+".path", &o.Path, vars)
		r.expand(place("outputs", i)+".destination", &o.Destination, vars)
	}
	(&checker{report: r}).paths(&out.Spec) // values can make two directories equal
	if err := r.err(); err != nil {
		return nil, &EnvError{err}
	}
	return &out, nil
}

// sequence matches what braces contain in an http or https URL that names several objects.
var sequence = regexp.MustCompile(`^[0-9]+\.\.[0-9]+$|,`)

var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// template matches what Helm, Argo and Jinja replace before stager reads a plan.
var template = regexp.MustCompile(`\{\{.*?\}\}`)

func (r *report) expand(at string, text *string, vars Vars) {
	*text = placeholder.ReplaceAllStringFunc(*text, func(braced string) string {
		name := braced[1 : len(braced)-1]
		if vars[name] != "" {
			return segment(vars[name])
		}
		for _, v := range variables {
			if v.name == name {
				r.add(at, "%s has no value; set %s in the environment", braced, v.env[0])
			}
		}
		return braced
	})
}

// placeholders checks that text contains only known placeholders.
func (c *checker) placeholders(at, text string) {
	if template.MatchString(text) {
		c.add(at, "%s is a template of another program; have that program fill it in first", template.FindString(text))
		return
	}
	known := make([]string, len(variables))
	for i, v := range variables {
		known[i] = v.name
	}
	for _, match := range placeholder.FindAllStringSubmatch(text, -1) {
		if slices.Contains(known, match[1]) || sequence.MatchString(match[1]) && strings.HasPrefix(text, "http") {
			continue
		}
		if meant := nearest(match[1], known); meant != "" {
			c.add(at, "unknown placeholder %s; did you mean {%s}?", match[0], meant)
		} else {
			c.add(at, "unknown placeholder %s; valid: {%s}", match[0], strings.Join(known, "} {"))
		}
	}
	if strings.ContainsAny(placeholder.ReplaceAllString(text, ""), "{}") {
		c.add(at, "unbalanced brace; write placeholders as {job}")
	}
}

// segmentMax is the maximum length of a value in a path; longer values are cut.
const segmentMax = 100

var unsafeInSegment = regexp.MustCompile(`^\.+|[^A-Za-z0-9._-]+`)

// segment makes a value safe as an element of a path, URL or key.
func segment(value string) string {
	safe := unsafeInSegment.ReplaceAllString(value, "-")
	safe = safe[:min(len(safe), segmentMax)]
	if safe == value {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return safe + "-" + hex.EncodeToString(sum[:4])
}
