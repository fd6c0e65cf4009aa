package reference

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// headerMeanings are those of the headers of responses.
var headerMeanings = map[string]string{
	"Retry-After":       "Seconds to wait before the next try.",
	"Stager-Wait-Cause": "Why there was no shard: backend, network, disk, budget, readers, or end after a drain.",
	"Stager-Lease":      "The lease.",
	"Stager-Shard":      "Name of the shard.",
	"Stager-Epoch":      "Its epoch, from 0.",
	"Stager-Position":   "Its position in the order of the epoch.",
	"Stager-Attempt":    "Number of deliveries of the shard, including this one.",
	"Stager-Skip":       "Leading samples to skip, which were used before the restored checkpoint.",
	"Stager-End":        "The epoch that has ended. The body is then an empty archive.",
}

// openAPI returns the description of the HTTP API as OpenAPI 3.1.
func openAPI(p *program) ([]byte, error) {
	s := &schemas{program: p, prefix: "#/components/schemas/", all: object{}}
	paths := object{}
	for _, r := range routes {
		operation, err := s.operation(r)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
		}
		at, ok := paths[r.path].(object)
		if !ok {
			at = object{}
			paths[r.path] = at
		}
		at[strings.ToLower(r.method)] = operation
	}
	text, err := json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "stager", "version": "1", "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "The HTTP API of stager run. Every response has the header Stager-Api with this version, which increases when a client of the version before would fail or lose data. Versions add operations, parameters and fields without notice.",
		},
		"servers": []object{
			{"url": "http://stager", "description": "The Unix socket: --socket. Any host name will do."},
			{"url": "http://localhost:9123", "description": "A port: --listen."},
		},
		"paths": paths,
		"components": object{
			"schemas":         s.all,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "The token in --token-file. The socket requires none."}},
		},
	}, "", "  ")
	return append(text, '\n'), err
}

// operation returns the description of a route.
func (s *schemas) operation(r route) (object, error) {
	out, params, responses := object{"summary": strings.TrimSuffix(r.does, ".")}, []object{}, object{}
	if r.about != "" {
		out["description"] = r.about
	}
	for _, p := range r.params {
		described := object{"name": p.name, "in": p.in, "description": p.meaning, "schema": p.schema()}
		if p.required {
			described["required"] = true
		}
		params = append(params, described)
	}
	if len(params) > 0 {
		out["parameters"] = params
	}
	if r.body != nil {
		content, err := s.content(r.body)
		if err != nil {
			return nil, err
		}
		out["requestBody"] = object{"required": true, "description": r.body.meaning, "content": content}
	}
	for _, resp := range r.allResponses() {
		described := object{"description": resp.meaning}
		if resp.body != nil {
			content, err := s.content(resp.body)
			if err != nil {
				return nil, err
			}
			described["content"] = content
		}
		headers := object{}
		for _, name := range resp.headers {
			headers[name] = object{"description": headerMeanings[name], "schema": object{"type": "string"}}
		}
		if len(headers) > 0 {
			described["headers"] = headers
		}
		responses[strconv.Itoa(resp.code)] = described
	}
	out["responses"] = responses
	if r.guarded {
		out["security"] = []object{{}, {"token": []string{}}}
	}
	return out, nil
}

// allResponses returns the responses of a route, with those of the server, by their codes.
func (r route) allResponses() []response {
	all := both(r.responses, refused(421, "On a port: the Host header is not this machine's."))
	if r.guarded {
		all = append(all,
			response{401, "On a port: the token is missing or wrong.", &body{of: "api.Failure"}, []string{"WWW-Authenticate"}},
			refused(403, "On a port: stager was started without --token-file."))
	}
	if !slices.ContainsFunc(all, func(r response) bool { return r.code == 503 }) {
		all = append(all, refused(503, "Too many connections are in use: try again in a moment."))
	}
	slices.SortFunc(all, func(a, b response) int { return cmp.Compare(a.code, b.code) })
	return all
}

// schema returns the schema of a parameter.
func (p param) schema() object {
	switch {
	case p.values != nil:
		return object{"enum": p.values}
	case p.kind == "number":
		return object{"type": "integer", "minimum": 0}
	case p.kind == "duration":
		return object{"type": "string", "pattern": durationForm, "examples": []string{"30s"}}
	}
	return object{"type": "string"}
}

// content returns the schemas of a body by its media types.
func (s *schemas) content(b *body) (object, error) {
	if b.of == "" {
		out := object{}
		for _, media := range strings.Split(b.media, ", ") {
			out[media] = object{}
		}
		return out, nil
	}
	of, err := s.program.named(b.of)
	if err != nil {
		return nil, err
	}
	schema, err := s.of(of)
	if b.many {
		schema = object{"oneOf": []object{schema, {"type": "array", "minItems": 1, "items": schema}}}
	}
	return object{cmp.Or(b.media, "application/json"): object{"schema": schema}}, err
}

const apiIntro = `# HTTP API

` + "`stager run`" + ` serves this API on its Unix socket, and with ` + "`--listen`" + ` on a port. The [Python client](../guides/python.md) and commands such as
` + "`stager next`" + ` use it. [openapi.json](../schema/openapi.json) describes it as OpenAPI 3.1, for generators and editors.

` + "```sh\ncurl --unix-socket /run/stager/stager.sock http://stager/v1/status\n```" + `

- Every response has the header ` + "`Stager-Api`" + ` with the version of the API. It increases when a client of the version before would fail or lose data.
- Bodies are JSON. An error is ` + "`{\"error\": \"a sentence\"}`" + `. Its status says who must act: 4xx the caller, 503 try again, 500 see the error.
- On a port, operations marked *token* require ` + "`Authorization: Bearer`" + ` with the token in ` + "`--token-file`" + `. The socket requires none.
- Durations are written as ` + "`30s` or `5m`" + `.
- A restart of the daemon ends no lease: readers reconnect and continue with theirs.

`

// apiPage returns the page of the HTTP API.
func apiPage(p *program) (string, error) {
	var b strings.Builder
	b.WriteString(generated + apiIntro + "## Operations\n\n| operation | does | on a port |\n|---|---|---|\n")
	for _, r := range routes {
		token := ""
		if r.guarded {
			token = "token"
		}
		fmt.Fprintf(&b, "| `%s %s` | %s | %s |\n", r.method, r.path, r.does, token)
	}
	for _, r := range routes {
		r.section(&b)
	}
	b.WriteString("\n## Types\n\nFields marked *optional* are absent when they are empty.\n")
	var described []*types.Named
	for _, name := range typesOf(routes) {
		t, err := p.named(name)
		if err != nil {
			return "", err
		}
		described = append(described, t.(*types.Named))
	}
	tables, err := p.tables(described...)
	b.WriteString(tables)
	return b.String(), err
}

// typesOf returns the names of the types in bodies.
func typesOf(all []route) (names []string) {
	add := func(b *body) {
		if b != nil && b.of != "" && !slices.Contains(names, b.of) {
			names = append(names, b.of)
		}
	}
	for _, r := range all {
		add(r.body)
		for _, resp := range r.responses {
			add(resp.body)
		}
	}
	slices.Sort(names)
	return names
}

// section writes the section of a route.
func (r route) section(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s %s\n\n%s %s\n", r.method, r.path, r.does, r.about)
	if len(r.params) > 0 {
		b.WriteString("\n| parameter | in | meaning |\n|---|---|---|\n")
	}
	for _, p := range r.params {
		name := "`" + p.name + "`"
		if p.required {
			name = "**" + name + "**"
		}
		meaning := markdown(p.meaning)
		if p.values != nil {
			meaning += " One of `" + strings.Join(p.values, "`, `") + "`."
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, p.in, meaning)
	}
	if r.body != nil {
		fmt.Fprintf(b, "\nBody: %s\n", r.body.link())
	}
	b.WriteString("\n| status | meaning | body | headers |\n|---|---|---|---|\n")
	for _, resp := range r.allResponses() {
		if resp.code == 401 || resp.code == 403 || resp.code == 421 {
			continue // of all alike
		}
		what := ""
		if resp.body != nil {
			what = resp.body.link()
		}
		headers := ""
		if len(resp.headers) > 0 {
			headers = "`" + strings.Join(resp.headers, "`, `") + "`"
		}
		fmt.Fprintf(b, "| %d | %s | %s | %s |\n", resp.code, markdown(resp.meaning), what, headers)
	}
}

// link returns what a body is of, with a link to its type.
func (b *body) link() string {
	switch {
	case b.of == "":
		return b.media
	case b.many:
		return fmt.Sprintf("[%s](#%s), or a list of them", b.of, typeAnchor(b.of))
	case b.media == jsonLines:
		return fmt.Sprintf("lines of [%s](#%s)", b.of, typeAnchor(b.of))
	}
	return fmt.Sprintf("[%s](#%s)", b.of, typeAnchor(b.of))
}

// typeAnchor returns the anchor of the heading of a type.
func typeAnchor(name string) string { return strings.ToLower(strings.ReplaceAll(name, ".", "")) }
