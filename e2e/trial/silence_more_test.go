package trial

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// asNobody is what the shell does to become a user without rights.
const asNobody = `exec setpriv --reuid 65534 --regid 65534 --clear-groups "$0" "$@";`

// onSmallDisk mounts a disk of 256 KiB, which goes with stager.
const onSmallDisk = `exec unshare --mount sh -c 'mount -t tmpfs -o size=256k tmpfs "$1" && shift && exec "$@"' sh DIR/small "$0" "$@";`

// mirror is an output of plain files.
const mirror = "  outputs:\n  - {name: ckpt, path: DIR/out, destination: \"URL/ckpt/\", commit: none, quietPeriod: 10ms, required: true}\n"

// notCopied are the words about what contentlessSource puts into a source.
var notCopied = []string{
	`no content and is not copied.*pipe.*FIFO`, `no content and is not copied.*sock.*socket`,
	`no content and is not copied.*empty/deep/.*directory without files`, `no content and is not copied.*round/up/.*link to a directory above it`,
}

var moreLosses = []loss{
	{name: "what is fetched has a FIFO and an empty directory", args: []string{"prefetch", "URL/src/", "DIR/to"}, setup: (*quiet).contentlessSource, log: notCopied, code: 0},
	{name: "what is copied has a FIFO and an empty directory", args: []string{"copy", "URL/src/", "URL/to/"}, setup: (*quiet).contentlessSource, log: notCopied, code: 0},
	{name: "what is packed has a FIFO and an empty directory", args: []string{"pack", "URL/src/", "URL/to/"}, setup: (*quiet).contentlessSource, log: notCopied, code: 0},
	{
		name: "the source of a window has a FIFO and an empty directory", plan: window("", ""), setup: (*quiet).contentlessSource,
		work: func(q *quiet) { q.take(1) }, status: `"name":"train"`, log: notCopied, code: 0, term: true,
	},
	{
		name: "a program reads the log", plan: window("", ""), args: []string{"--log-format", "json"}, setup: func(q *quiet) { q.shards(1) },
		work: func(q *quiet) { q.take(1) }, status: `"name":"train"`, log: []string{`"window open",.*"limit":1048576,`}, code: 0, term: true,
	},
	{
		name: "a packing is verified that was made with another seed", args: []string{"pack", "--verify", "--shuffle", "2", "URL/src/", "URL/to/"},
		setup: func(q *quiet) {
			q.shards(9)
			if out, err := exec.Command(q.binary, "pack", "--shuffle", "1", q.here("URL/src/"), q.here("URL/to/")).CombinedOutput(); err != nil {
				q.t.Fatalf("%v: %s", err, out)
			}
		},
		log: []string{`"shard-000000.tar" differs: its bytes`, "the copy is incomplete"}, code: 76,
	},
	{
		name: "an archive has more directories than fit into the limit", args: []string{"prefetch", "--unpack", "auto", "--max-bytes", "1Mi", "URL/src/", "DIR/to"},
		setup: func(q *quiet) { q.directories(5000) },
		log:   []string{"many.tar.gz: unpacking .* would use .* bytes, but at most 1048576 are allowed"}, code: 78,
	},
	{
		name: "what is pushed has a FIFO and a socket", args: []string{"push", "DIR/src", "URL/to/"},
		setup: func(q *quiet) { q.write("src/a", "x"); q.contentless("src") },
		log:   []string{`no content to save.*pipe.*FIFO`, `no content to save.*sock.*socket`}, code: 0,
	},
	{
		name: "an output has a FIFO and a socket", plan: mirror,
		work: func(q *quiet) {
			q.contentless("out")
			q.write("out/notes.txt", "plain")
			q.await("it is sent", func() bool { q.scrape(); return q.moved["stager_checkpoint_mirrored_bytes_total"] })
		},
		status: `"mirrored":{"files":1`, log: []string{`no content to save.*pipe.*FIFO`, `no content to save.*sock.*socket`}, code: 0, term: true,
	},
	{
		name: "a checkpoint has a FIFO and a socket", plan: output(", required: true", ""),
		work: func(q *quiet) {
			q.write("out/step-1/model", "aaaa")
			q.contentless("out/step-1")
			q.commit("step-1", http.StatusOK)
		},
		status: `"committed":{"step":1`, log: []string{`no content to save.*pipe.*FIFO`, `no content to save.*sock.*socket`}, code: 0, term: true,
	},
	{
		name: "a checkpoint that is pushed has a FIFO", args: []string{"push", "--commit", "DIR/step-1", "URL/ckpt/"},
		setup: func(q *quiet) { q.write("step-1/model", "aaaa"); q.contentless("step-1") },
		log:   []string{`no content to save.*pipe.*FIFO`}, code: 0,
	},
	{
		name: "a file that is pushed may not be read", args: []string{"push", "DIR/src", "URL/to/"}, shell: asNobody, root: true,
		setup: func(q *quiet) { q.letIn(); q.write("src/a", "x"); q.write("src/secret", "x"); q.forbid("src/secret") },
		log:   []string{`"secret".*cannot be read`, "1 of the entries cannot be saved, the others are"}, code: 75,
	},
	{
		name: "nothing that is pushed may be read", args: []string{"push", "DIR/src", "URL/to/"}, shell: asNobody, root: true,
		setup: func(q *quiet) { q.letIn(); q.write("src/secret", "x"); q.forbid("src/secret") },
		log:   []string{"secret cannot be read by stager"}, code: 77,
	},
	{
		name: "a file of an output may not be read", plan: mirror, shell: asNobody, root: true,
		setup: func(q *quiet) {
			q.letIn()
			q.write("out/notes.txt", "plain")
			q.write("out/secret", "x")
			q.forbid("out/secret")
		},
		work: func(q *quiet) {
			q.await("it is counted", func() bool { q.scrape(); return q.moved["stager_checkpoint_not_saved_files"] })
		},
		status: `"notSaved":\[{"name":"secret"`, log: []string{"secret.*cannot be read"}, code: 75, term: true,
		moves: []string{"stager_checkpoint_not_saved_files"},
	},
	{
		name: "the source may not be read", args: []string{"prefetch", "URL/src/", "DIR/to"}, shell: asNobody, root: true,
		setup: func(q *quiet) { q.letIn(); q.write("src/secret", "x"); q.forbid("src/secret") },
		log:   []string{"secret.*permission denied"}, code: 77,
	},
	{
		name: "the disk is full", args: []string{"prefetch", "URL/src/", "DIR/small/to"}, shell: onSmallDisk, root: true,
		setup: func(q *quiet) {
			q.write("src/a", strings.Repeat("x", 1<<20))
			q.must(os.Mkdir(q.path("small"), 0o755))
		},
		log: []string{"no space left on device|are free"}, code: 73,
	},
	{
		name: "the disk of the store is full", args: []string{"push", "--retry-for", "1s", "DIR/src", "URL/small/to/"}, shell: onSmallDisk, root: true,
		setup: func(q *quiet) {
			q.write("src/a", strings.Repeat("x", 1<<20))
			q.must(os.Mkdir(q.path("small"), 0o755))
		},
		log: []string{"no space left on device"}, code: 73,
	},
	{
		name: "credentials expire in mid-run", args: []string{"prefetch", "--connections", "1", "s3://trial/src/", "DIR/to"},
		setup: func(q *quiet) { q.expiring(10, "src") },
		log:   []string{"session token has expired"}, code: 77,
	},
	{
		name:  "credentials expire while a checkpoint is sent",
		plan:  strings.Replace(output(", required: true, deadline: 2s", "{connections: 1}"), "URL/ckpt/", "s3://trial/ckpt/", 1),
		setup: func(q *quiet) { q.expiring(60, "src") },
		work: func(q *quiet) {
			for i := range 100 {
				q.write(fmt.Sprintf("out/step-1/model-%03d", i), "aaaa")
			}
			q.commit("step-1", http.StatusAccepted)
			q.await("it fails", func() bool { return strings.Contains(q.said(), "session token has expired") })
		},
		status: `session token has expired`,
		log:    []string{"step 1 .*is not safe.*"}, code: 75, term: true, moves: []string{"stager_store_requests_total"},
	},
	{
		name: "a checkpoint changes after it was accepted", plan: output(", required: true, deadline: 5s", "{bandwidth: 64Ki}"),
		work: func(q *quiet) {
			q.write("out/step-1/model", strings.Repeat("m", 3<<18)) // three times what may be sent at once
			q.commit("step-1", http.StatusAccepted)
			q.await("it is being sent", func() bool { q.scrape(); return q.moved["stager_checkpoint_uploading_bytes"] })
			q.write("out/step-1/model", strings.Repeat("M", 3<<18)) // in place
			q.await("it is noticed", func() bool { return strings.Contains(q.said(), "not committed, because it changed") })
		},
		status: `"output":"ckpt"`, log: []string{`level=WARN .*not committed, because it changed.* step=1`}, code: 75, term: true,
	},
	{
		name: "a bad shard is skipped", plan: window("onBad: skip, ", ""), setup: func(q *quiet) { q.shards(2) },
		work: func(q *quiet) {
			q.refuse(3)
			q.take(1)
		},
		status: `"skipped":\[{"name":"shard-0.tar"`,
		log:    []string{"shard-0.tar .*cannot be delivered: readers rejected it .*torn", "1 shard was skipped: shard-0.tar"}, code: 76, term: true,
		moves: []string{"stager_window_skipped_total"},
	},
	{
		name: "a bad shard is skipped, and that is allowed", plan: window("onBad: allow, ", ""), setup: func(q *quiet) { q.shards(2) },
		work: func(q *quiet) {
			q.refuse(3)
			q.take(1)
		},
		status: `"skipped":\[{"name":"shard-0.tar"`, log: []string{"shard-0.tar .*cannot be delivered: readers rejected it .*torn"}, code: 0, term: true,
		moves: []string{"stager_window_skipped_total"},
	},
}

// contentless puts a FIFO and a socket into a directory.
func (q *quiet) contentless(dir string) {
	q.t.Helper()
	q.must(os.MkdirAll(q.path(dir), 0o755))
	q.must(syscall.Mkfifo(q.path(filepath.Join(dir, "pipe")), 0o644))
	socket, err := net.Listen("unix", q.path(filepath.Join(dir, "sock")))
	q.must(err)
	q.t.Cleanup(func() { socket.Close() })
}

// contentlessSource makes a source of one file, of which entries have no content.
func (q *quiet) contentlessSource() {
	q.t.Helper()
	q.shards(1)
	q.contentless("src")
	q.must(os.MkdirAll(q.path("src/empty/deep"), 0o755))
	q.must(os.MkdirAll(q.path("src/round"), 0o755))
	q.must(os.Symlink("..", q.path("src/round/up")))
}

// directories makes a source of one archive, which has that many directories.
func (q *quiet) directories(n int) {
	q.t.Helper()
	var packed bytes.Buffer
	squeezed := gzip.NewWriter(&packed)
	archive := tar.NewWriter(squeezed)
	for i := range n {
		q.must(archive.WriteHeader(&tar.Header{Name: fmt.Sprintf("%05d/", i), Typeflag: tar.TypeDir, Mode: 0o755}))
	}
	q.must(errors.Join(archive.Close(), squeezed.Close()))
	q.write("src/many.tar.gz", packed.String())
}

// letIn lets a user without rights work in the row's directory, with a binary of its own.
func (q *quiet) letIn() {
	q.t.Helper()
	if out, err := exec.Command("cp", q.binary, q.path("stager")).CombinedOutput(); err != nil {
		q.t.Fatalf("%v: %s", err, out)
	}
	q.binary = q.path("stager")
	for _, dir := range []string{".", "to", "out", "ckpt"} {
		q.must(os.MkdirAll(q.path(dir), 0o755))
		q.must(os.Chmod(q.path(dir), 0o777))
	}
}

func (q *quiet) forbid(name string) {
	q.t.Helper()
	q.must(os.Chmod(q.path(name), 0))
}

// expiring starts an S3 server with 20 files below src, whose clients have a token that
// expires after some requests.
func (q *quiet) expiring(after int, src string) {
	q.t.Helper()
	dir := q.path("s3")
	server, err := servers.StartS3(q.t.Context(), servers.S3Options{Dir: dir, Buckets: []string{"trial"}})
	live.Require(q.t, "s3", err)
	q.t.Cleanup(func() { server.Close() })
	for i := range 20 {
		q.write(fmt.Sprintf("s3/objects/trial/%s/%02d", src, i), strings.Repeat("x", 1000))
	}
	proxy, err := servers.NewProxy(server.Endpoint)
	q.must(err)
	q.t.Cleanup(proxy.Close)
	proxy.ExpireAfter(after)
	q.env = append(server.Env(), "AWS_ENDPOINT_URL_S3="+proxy.URL)
}
