package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// route is an operation of the HTTP API.
type route struct {
	method, path string
	does, about  string // a sentence, and details
	params       []param
	body         *body
	responses    []response
	guarded      bool // on a port it needs the token
}

// param is a parameter in the path, in the query or in a header.
type param struct {
	name, in, meaning string
	kind              string // text unless set: number, duration
	values            []string
	required          bool
}

// body is what a request or a response carries.
type body struct {
	of      string // a type, or "" for bytes
	media   string // JSON unless set
	many    bool   // also a list, or lines of JSON
	meaning string
}

// response is what an operation returns.
type response struct {
	code    int
	meaning string
	body    *body
	headers []string
}

const (
	jsonLines = "application/jsonl"
	anyBytes  = "application/octet-stream"
	archive   = "application/x-tar"
	plainText = "text/plain; charset=utf-8"
)

// refused returns the response of an error.
func refused(code int, meaning string) response {
	return response{code: code, meaning: meaning, body: &body{of: "api.Failure"}}
}

func returns(of, meaning string) response {
	return response{code: 200, meaning: meaning, body: &body{of: of}}
}

// Responses that several operations have.
var (
	badParam   = refused(400, "A parameter is invalid; the error names it and what it accepts.")
	failedCall = refused(500, "The operation failed; the error says why.")
	noOutput   = refused(404, "The plan has no such output.")
	opening    = response{503, "It is still being opened, or its source is still being listed (`Stager-Wait-Cause: listing`): try again in a moment.", &body{of: "api.Failure"}, []string{"Retry-After"}}
	lookup     = []response{
		refused(404, "The plan has no such input, or it is optional and its source is empty."),
		refused(500, "The input has failed; the error says why."),
		opening,
	}
	bodyFaults = []response{
		refused(408, "The body did not arrive in time."),
		refused(413, "The body is too long."),
	}
)

// Parameters that several operations have.
var (
	inputParam  = param{name: "input", in: "path", required: true, meaning: "Name of the input in the plan."}
	outputParam = param{name: "output", in: "path", required: true, meaning: "Name of the output in the plan."}
	epochParam  = param{name: "epoch", in: "query", kind: "number", meaning: "An epoch, counted from 0. Default: the current one."}
	listParam   = param{name: "wait", in: "query", kind: "duration", meaning: "How long to wait until the source is listed, before which there is no cursor. Default: until it is."}
	groupParam  = param{name: "group", in: "query", kind: "number", meaning: "Reader group, counted from 0, of an input with groups."}
	bindParam   = param{
		name: "Stager-Bind", in: "header", values: []string{"connection"},
		meaning: "The lease lives as long as this connection, instead of for a time that renew restarts. Not through a proxy.",
	}
	readerParams = []param{
		inputParam,
		{name: "reader", in: "query", meaning: "Name of the reader: up to 128 letters, digits and -_.:@+=. Requests without a name are one reader."},
		{name: "epoch", in: "query", kind: "number", meaning: "Lease nothing of a later epoch. Counted from 0."},
		{name: "end", in: "query", values: []string{"all", "early"}, meaning: "early: report the end of the epoch when other readers hold the shards that are left."},
		{name: "mixes", in: "query", values: []string{"true", "false"}, meaning: "true: the reader reorders samples, so that their number does not give its position."},
		groupParam,
	}
)

func both[T any](some []T, more ...T) []T { return append(slices.Clone(some), more...) }

// routes are the operations of the HTTP API, in the order of the page.
var routes = []route{
	{
		method: "POST", path: "/v1/inputs/{input}/lease", guarded: true,
		does:   "Lease the next shard.",
		about:  "Waits until a shard is available. The end of an epoch is reported once to each reader; its next request is for the next epoch.",
		params: both(readerParams, param{name: "wait", in: "query", kind: "duration", meaning: "How long to wait for a shard. Default: 30s."}, bindParam),
		responses: both(append(lookup, bodyFaults...),
			returns("api.LeaseResponse", "A shard, or the end of an epoch."),
			response{204, "No shard was available in time, or stager has drained.", nil, []string{"Stager-Wait-Cause"}},
			badParam,
			refused(409, "The release mode of the input does not use leases.")),
	},
	{
		method: "GET", path: "/v1/inputs/{input}/next", guarded: true,
		does:   "Lease the next shard and return its bytes.",
		about:  "A reader's next request acknowledges the shard before, if that was received to its last byte. After the end of an epoch the body is an empty tar.",
		params: readerParams,
		responses: both(lookup,
			response{
				200, "The shard, or an archive of its files if it is a directory.", &body{media: anyBytes + ", " + archive},
				[]string{"Stager-Lease", "Stager-Shard", "Stager-Epoch", "Stager-Position", "Stager-Attempt", "Stager-Skip", "Stager-End"},
			},
			badParam,
			refused(405, "The method is HEAD."),
			refused(409, "This reader is still receiving another shard, or the input has no leases.")),
	},
	{
		method: "POST", path: "/v1/leases/{id}/{verb}", guarded: true,
		does: "End or renew a lease.",
		params: []param{
			{name: "id", in: "path", required: true, meaning: "The lease, as returned with the shard."},
			{name: "verb", in: "path", required: true, values: []string{"ack", "nack", "return", "renew"}, meaning: "ack: the shard is finished. nack: it is bad. return: deliver it again, to any reader. renew: hold it longer."},
			{name: "reason", in: "query", meaning: "With nack: why, for the log and the report."},
			bindParam,
		},
		responses: leaseEnds(refused(404, "There is no such operation.")),
	},
	{
		method: "POST", path: "/v1/ack", guarded: true,
		does:      "Acknowledge a shard by its path.",
		params:    []param{{name: "path", in: "query", required: true, meaning: "The path of the shard, as returned with the lease."}, groupParam},
		responses: leaseEnds(),
	},
	{
		method: "POST", path: "/v1/nack", guarded: true,
		does: "Reject a bad shard by its path.",
		params: []param{
			{name: "path", in: "query", required: true, meaning: "The path of the shard, as returned with the lease."},
			{name: "reason", in: "query", meaning: "Why, for the log and the report."},
			groupParam,
		},
		responses: leaseEnds(),
	},
	{
		method: "GET", path: "/v1/inputs/{input}", params: []param{inputParam},
		does:      "Return the state of a window.",
		responses: both(lookup, returns("window.Status", "The state.")),
	},
	{
		method: "GET", path: "/v1/inputs/{input}/cursor", params: []param{inputParam, listParam, {
			name: "beginning", in: "query",
			meaning: "`true`: do not wait. While the source is being listed, the cursor is one of the first shards, which any list that begins with them accepts. With the `manifest` of such a cursor instead: return the cursor if it is of the same order.",
		}},
		does: "Return the cursor: what of the order is finished.",
		responses: both(lookup, returns("window.Cursor", "The cursor."),
			refused(400, "`wait` is not a time."),
			refused(422, "The list of the source does not begin as `beginning` says.")),
	},
	{
		method: "PUT", path: "/v1/inputs/{input}/cursor", params: []param{inputParam, listParam}, guarded: true,
		does:  "Continue from a cursor, with any number of nodes.",
		about: "A job that had several nodes gives the cursors of all of them.",
		body:  &body{of: "window.Cursor", many: true, meaning: "A cursor, or a list of cursors."},
		responses: both(append(lookup, bodyFaults...),
			returns("window.Cursor", "The new cursor."),
			refused(400, "The body is not a cursor, or `wait` is not a time."),
			refused(422, "The input cannot continue from this cursor; the error says why.")),
	},
	{
		method: "GET", path: "/v1/inputs/{input}/plan", params: []param{inputParam, epochParam},
		does:      "Return the order of an epoch, for all nodes.",
		responses: both(lookup, response{200, "A line for each position.", &body{of: "window.Position", media: jsonLines}, nil}, badParam),
	},
	{
		method: "GET", path: "/v1/inputs/{input}/report", params: []param{inputParam, epochParam},
		does: "Return how the positions of an epoch were finished.",
		responses: both(lookup[1:],
			response{200, "A line for each finished position.", &body{of: "window.Delivery", media: jsonLines}, nil},
			badParam,
			refused(404, "The plan has no such input, or there is no report of this epoch.")),
	},
	{
		method: "GET", path: "/v1/inputs/{input}/quality", params: []param{inputParam, epochParam},
		does:      "Measure how well an epoch was mixed, in the order of delivery.",
		responses: both(lookup, returns("plan.Quality", "The measurements."), badParam),
	},
	{
		method: "POST", path: "/v1/outputs/{output}/commit", guarded: true,
		does:   "Declare a checkpoint complete.",
		about:  "When it responds, the files are held by hard links, and the trainer may delete its own.",
		params: []param{outputParam, {name: "wait", in: "query", kind: "duration", meaning: "How long to wait until the checkpoint is saved. Default: do not wait."}},
		body:   &body{of: "api.CommitOrder", meaning: "The checkpoint."},
		responses: both(bodyFaults,
			response{200, "The checkpoint is saved.", &body{of: "checkpoint.Step"}, nil},
			response{202, "The files are held; saving continues.", &body{of: "checkpoint.Step"}, nil},
			refused(400, "The body or a parameter is invalid."),
			noOutput,
			refused(409, "The files have changed since, or other nodes have yet to finish: the same request may succeed later."),
			refused(422, "The checkpoint cannot be saved as it is; the error says why."),
			failedCall,
			opening,
			refused(507, "There is no room for a copy of files that may be overwritten.")),
	},
	{
		method: "GET", path: "/v1/outputs/{output}", params: []param{outputParam},
		does:      "Return what of an output is saved, and what is not.",
		responses: []response{returns("checkpoint.Status", "The state."), noOutput, failedCall, opening},
	},
	{
		method: "POST", path: "/v1/restored", guarded: true,
		does: "Record that the trainer begins again from an agreed checkpoint.",
		params: []param{
			{name: "source", in: "query", required: true, meaning: "URL of the checkpoints."},
			{name: "job", in: "query", required: true, meaning: "Identity of the job."},
			{name: "agreement", in: "query", kind: "number", required: true, meaning: "Number of the agreement, from 1."},
		},
		responses: []response{returns("api.Snapshot", "The whole state."), badParam, failedCall, opening},
	},
	{
		method: "POST", path: "/v1/drain", guarded: true,
		does:      "Stop fetching and save the outputs.",
		params:    []param{{name: "deadline", in: "query", kind: "duration", meaning: "Time left. Default: the deadline of the plan."}},
		responses: []response{{202, "The drain has started; this is the whole state.", &body{of: "api.Snapshot"}, nil}, badParam},
	},
	{
		method: "POST", path: "/v1/save", guarded: true,
		does:      "Save the outputs after the trainer has exited.",
		about:     "Responds when all are saved. The daemon continues to serve, as the trainer may be restarted.",
		params:    []param{{name: "code", in: "query", kind: "number", meaning: "Exit code of the trainer, from 0 to 255. Default: 0."}},
		responses: []response{returns("api.Snapshot", "All outputs are saved; this is the whole state."), badParam, refused(500, "A required output is not saved."), opening},
	},
	{
		method: "GET", path: "/v1/status",
		does:      "Return the whole state.",
		responses: []response{returns("api.Snapshot", "The state, as `stager status -o json` prints it.")},
	},
	{
		method: "GET", path: "/healthz",
		does:      "Check that the daemon responds.",
		responses: []response{{200, "It does.", &body{media: plainText}, nil}},
	},
	{
		method: "GET", path: "/readyz",
		does:      "Check that the trainer can start.",
		responses: []response{{200, "Every input is ready.", &body{media: plainText}, nil}, refused(503, "Not yet; the error names what it waits for.")},
	},
	{
		method: "GET", path: "/metrics",
		does:      "Return the metrics in the format of Prometheus.",
		responses: []response{{200, "The metrics; see the page of metrics.", &body{media: plainText}, nil}},
	},
}

// leaseEnds are the responses to the end of a lease.
func leaseEnds(more ...response) []response {
	return append([]response{
		{204, "Done.", nil, nil},
		refused(400, "A parameter or a header is invalid."),
		refused(410, "There is no such lease: it has ended, and the shard may have gone to another reader."),
		failedCall,
		{503, "Inputs are still being listed after a restart: try again in a moment.", &body{of: "api.Failure"}, []string{"Retry-After"}},
	}, more...)
}

// checkRoutes returns an error unless routes are those that the package in source serves.
func checkRoutes(source string) error {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(source, "api.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	served := make(map[string]bool) // by pattern: whether it is guarded
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		called, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !strings.HasPrefix(called.Sel.Name, "Handle") {
			return true
		}
		if pattern, ok := call.Args[0].(*ast.BasicLit); ok {
			text, err := strconv.Unquote(pattern.Value)
			if err == nil {
				served[text] = isCallOf(call.Args[1], "guard")
			}
		}
		return true
	})
	for _, r := range routes {
		pattern := r.method + " " + r.path
		guarded, known := served[pattern]
		delete(served, pattern)
		switch {
		case !known:
			return fmt.Errorf("the API does not serve %s; correct the routes of package reference", pattern)
		case guarded != r.guarded:
			return fmt.Errorf("%s needs a token on a port: %t; correct the routes of package reference", pattern, guarded)
		}
	}
	for pattern := range served {
		return fmt.Errorf("describe %s in the routes of package reference", pattern)
	}
	return nil
}

func isCallOf(e ast.Expr, name string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	called, ok := call.Fun.(*ast.Ident)
	return ok && called.Name == name
}
