package jobspec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
	"github.com/stager-dev/stager/stager/plan"
)

// params are the options of an entry and their fields in the plan.
var params = map[string]struct{ in, out string }{
	"mode":         {in: "mode"},
	"size":         {in: "window.size"},
	"release":      {in: "window.release"},
	"minReady":     {in: "window.minReady.files"},
	"minAge":       {in: "window.minAge"},
	"minFree":      {in: "window.minFree"},
	"leaseTimeout": {in: "window.leaseTimeout"},
	"items":        {in: "window.items"},
	"bundle":       {in: "window.bundle"},
	"expand":       {in: "window.expand"},
	"parallel":     {in: "window.parallel"},
	"anyOrder":     {in: "window.anyOrder"},
	"reuse":        {in: "window.reuse"},
	"onBad":        {in: "window.onBad"},
	"groups":       {in: "window.groups"},
	"order":        {in: "order.by"},
	"seed":         {in: "order.seed"},
	"epochs":       {in: "order.epochs"},
	"list":         {in: "order.list"},
	"block":        {in: "order.block"},
	"candidates":   {in: "order.candidates"},
	"over":         {in: "order.over"},
	"within":       {in: "order.within"},
	"equalize":     {in: "order.equalize"},
	"index":        {in: "index"},
	"include":      {in: "include"},
	"exclude":      {in: "exclude"},
	"layout":       {in: "layout"},
	"unpack":       {in: "unpack"},
	"verify":       {in: "verify"},
	"write":        {in: "write"},
	"maxBytes":     {in: "maxBytes"},
	"optional":     {in: "optional"},
	"volume":       {in: "volume", out: "volume"},
	"secret":       {in: "credentials.secret", out: "credentials.secret"},
	"keys":         {in: "credentials.keys", out: "credentials.keys"},
	"commit":       {out: "commit"},
	"when":         {out: "when"},
	"interval":     {out: "interval"},
	"quietPeriod":  {out: "quietPeriod"},
	"step":         {out: "step"},
	"hold":         {out: "hold.checkpoints"},
	"keep":         {out: "keep.last"},
	"nodes":        {out: "nodes"},
	"conflict":     {out: "conflict"},
	"required":     {out: "required"},
	"deadline":     {out: "deadline"},
	"minBandwidth": {out: "minBandwidth"},
	"medium":       {}, // of a volume of its own
}

// several are the options with several values, separated by commas.
var several = []string{"include", "exclude", "when", "keys"}

func (e entry) input() (yamledit.Map, []any) {
	source, directory, options := e.split("URL -> PATH ? key=value&key=value, as in s3://bucket/train/ -> /data/train ? mode=window&size=80Gi")
	m := yamledit.Map{{Key: "name", Value: e.name}, {Key: "source", Value: source}, {Key: "path", Value: directory}}
	return e.options(m, options, true)
}

func (e entry) output() (yamledit.Map, []any) {
	directory, destination, options := e.split("PATH -> URL ? key=value&key=value, as in /out -> s3://bucket/runs/{job}/ ? keep=3")
	m := yamledit.Map{{Key: "name", Value: e.name}, {Key: "path", Value: directory}, {Key: "destination", Value: destination}}
	return e.options(m, options, false)
}

// refuse reports an error in a part of an entry.
func (e entry) refuse(piece, format string, args ...any) {
	f := Fault{Text: e.name + ": " + fmt.Sprintf(format, args...)}
	f.Line, f.Column = e.at.Position()
	if i := strings.Index(e.at.Raw(), piece); i > 0 && !strings.Contains(e.at.Raw()[:i], "\n") {
		f.Column += i
	}
	panic(stop{f})
}

func (e entry) split(form string) (left, right, options string) {
	text := strings.TrimSpace(e.at.Text())
	left, rest, ok := strings.Cut(text, " -> ")
	if !ok {
		e.refuse("", "%q has no \" -> \"; write %s", text, form)
	}
	right, options = cutOptions(rest)
	left, right = strings.TrimSpace(left), strings.TrimSpace(right)
	if left == "" || right == "" {
		e.refuse("->", "one side of -> is empty; write %s", form)
	}
	return left, right, strings.TrimSpace(options)
}

// cutOptions cuts the right side of an entry at the question mark before the options. The question
// mark may have no spaces around it, as in /data?mode=window. A URL keeps its own query, unless all
// keys of the query are options.
func cutOptions(text string) (right, options string) {
	right, options, ok := strings.Cut(text, " ?")
	if ok {
		return right, options
	}
	right, options, _ = strings.Cut(text, "?")
	if strings.Contains(right, "://") {
		for piece := range strings.SplitSeq(options, "&") {
			key, _, _ := strings.Cut(strings.TrimSpace(piece), "=")
			if _, known := params[key]; !known {
				return text, ""
			}
		}
	}
	return right, options
}

// options stores the options of an entry in its map. It returns the volume that they describe.
func (e entry) options(m yamledit.Map, options string, input bool) (yamledit.Map, []any) {
	var size, medium string
	window := false
	for piece := range strings.SplitSeq(options, "&") {
		if piece == "" {
			continue
		}
		key, text, _ := strings.Cut(piece, "=")
		p, ok := params[key]
		to := p.out
		if input {
			to = p.in
		}
		switch {
		case key == "medium":
			medium = text
			continue
		case key == "size":
			size = text
		case !ok || to == "":
			e.refuse(piece, "%q is not known here; known are %s", key, strings.Join(paramsOf(input), ", "))
		case text == "":
			e.refuse(piece, "%s has no value; write %s=VALUE", key, key)
		}
		if key == "mode" {
			window = text == plan.ModeWindow
		}
		if key == "size" {
			continue // of the window or the volume
		}
		var v any = text
		if slices.Contains(several, key) {
			var items []any
			for item := range strings.SplitSeq(text, ",") {
				items = append(items, item)
			}
			v = items
		}
		m = putIn(m, strings.Split(to, "."), v)
	}
	if size != "" && window {
		m = putIn(m, []string{"window", "size"}, size)
	}
	if medium == "" && (size == "" || window) {
		return m, nil
	}
	volume := yamledit.Map{{Key: "name", Value: e.name}}
	if size != "" {
		bytes, err := plan.ParseBytes(size)
		if err != nil {
			e.refuse(size, "%v", err)
		}
		if window {
			bytes = headroom(bytes)
		}
		volume = append(volume, yamledit.Entry{Key: "size", Value: bytes.String()})
	}
	if medium != "" {
		volume = append(volume, yamledit.Entry{Key: "medium", Value: medium})
	}
	return putIn(m, []string{"volume"}, e.name), []any{volume}
}

func paramsOf(input bool) (names []string) {
	for name, p := range params {
		if input && p.in != "" || !input && p.out != "" || name == "medium" || name == "size" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// putIn sets a nested value and creates the maps on the path.
func putIn(m yamledit.Map, path []string, v any) yamledit.Map {
	for i := range m {
		if m[i].Key == path[0] {
			if len(path) > 1 {
				inner, _ := m[i].Value.(yamledit.Map)
				v = putIn(inner, path[1:], v)
			}
			m[i].Value = v
			return m
		}
	}
	if len(path) > 1 {
		v = putIn(nil, path[1:], v)
	}
	return append(m, yamledit.Entry{Key: path[0], Value: v})
}
