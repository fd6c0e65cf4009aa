package trial

import (
	"archive/tar"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
)

// endLosses are the rows about how a run ends, about what restore and retention pass over, and
// about stores that do not respond.
var endLosses = []loss{
	{
		name: "an input fails", plan: "  inputs:\n  - {name: train, source: \"URL/none/\", path: DIR/win, mode: prefetch}\n", unready: true,
		log: []string{`level=ERROR msg="input failed" error="input train: .*no such file or directory`}, code: 66,
	},
	{
		name: "an optional output is not saved", plan: output(", deadline: 1s, required: false", "{bandwidth: 64Ki}"),
		work: func(q *quiet) {
			q.write("out/step-1/model", strings.Repeat("m", 4<<20))
			q.commit("step-1", http.StatusAccepted)
			q.await("it is being sent", func() bool { q.scrape(); return q.moved["stager_checkpoint_uploading_bytes"] })
		},
		status: `"uploading":{"step":1`, log: []string{`level=WARN .*optional output not saved.* output=ckpt .*step 1 .*is not safe`}, code: 0, term: true,
	},
	{
		name: "the command succeeds and its output is not saved", plan: output(", deadline: 1s, required: true", "{bandwidth: 64Ki}"), args: []string{"--", "sh", "-c", "until [ -e DIR/go ]; do sleep 0.05; done"},
		work: func(q *quiet) {
			q.write("out/step-1/model", strings.Repeat("m", 4<<20))
			q.commit("step-1", http.StatusAccepted)
			q.await("it is being sent", func() bool { q.scrape(); return q.moved["stager_checkpoint_uploading_bytes"] })
			q.write("go", "")
		},
		log: []string{"stager: outputs are not saved: output ckpt: step 1 .*is not safe"}, code: 75,
	},
	{
		name: "a checkpoint is not complete at the end", plan: output(", required: true", ""),
		work: func(q *quiet) {
			q.write("out/step-1/model-00001-of-00002.bin", "half")
			q.await("it waits", func() bool {
				_, status := q.call("GET", "/v1/status", "")
				return strings.Contains(status, `"waiting":[{"name":"step-1"`)
			})
		},
		status: `"waiting":\[{"name":"step-1"`, log: []string{`level=WARN .*not saved, because it is not a complete checkpoint.* name=step-1`}, code: 0, term: true,
	},
	{
		name: "the command reads no shard of a window", plan: window("size: 192Ki, ", ""), args: []string{"--", "sh", "-c", "until [ -e DIR/go ]; do sleep 0.05; done"},
		setup: func(q *quiet) { q.shards(9) }, work: func(q *quiet) { q.write("go", "") },
		log: []string{`level=WARN .*command acknowledged no shard.* shards=9`}, code: 0,
	},
	{
		name: "another program writes among the shards", plan: window("", ""), setup: func(q *quiet) { q.shards(1) },
		work: func(q *quiet) {
			q.write("win/ready/notes.txt", "x")
			q.await("it is noticed", func() bool { return strings.Contains(q.said(), "ignoring a foreign file in ready/") })
		},
		status: `"name":"train"`, log: []string{`level=WARN .*ignoring a foreign file in ready/.* file=notes.txt`}, code: 0, term: true,
	},
	{
		name: "the newest checkpoint is provisional", args: []string{"restore", "URL/ckpt/", "DIR/to"},
		setup: func(q *quiet) {
			q.push(1, "aaaa")
			q.write("pushed/step-2/more", "x")
			q.push(2, "bbbb")
			q.edit("ckpt/step-00000002/COMMIT.json", `"evidence": "commit"`, `"evidence": "quiet period", "provisional": true`)
		},
		log: []string{`level=WARN .*skipping a newer checkpoint, which is provisional.* step=step-00000002`, `restored.* step=1`}, code: 0,
	},
	{
		name: "the newest COMMIT is damaged, and restore passes over it", args: []string{"restore", "URL/ckpt/", "DIR/to"},
		setup: func(q *quiet) {
			q.push(1, "aaaa")
			q.push(2, "bbbb")
			q.edit("ckpt/step-00000002/COMMIT.json", `"kind"`, `kind`)
		},
		log: []string{`level=WARN .*a checkpoint is damaged, trying the one before it.* step=step-00000002`}, code: 0,
	},
	{
		name: "a COMMIT is damaged, and prune keeps it", args: []string{"prune", "--last", "1", "URL/ckpt/"},
		setup: func(q *quiet) {
			q.push(1, "aaaa")
			q.push(2, "bbbb")
			q.edit("ckpt/step-00000001/COMMIT.json", `"kind"`, `kind`)
		},
		log: []string{`level=WARN .*a COMMIT is not valid, so restore would skip this step.* step=step-00000001`}, code: 0,
	},
	{
		name: "a checkpoint that is verified is damaged", args: []string{"checkpoints", "--verify", "URL/ckpt/"},
		setup: func(q *quiet) { q.push(1, "aaaa"); q.push(2, "bbbb"); q.damage(1, "axaa") },
		log:   []string{"step-00000001.*model"}, code: 76,
	},
	{
		name: "a checkpoint has no positions to rewind to", plan: window("", ""), setup: func(q *quiet) { q.shards(1); q.push(1, "aaaa") },
		work: func(q *quiet) {
			q.runs("restore", "--rewind", "--socket", "DIR/s", "URL/ckpt/", "DIR/to")
		},
		status: `"name":"train"`, log: []string{`level=WARN .*checkpoint has no input positions, not rewinding.* step=1`}, code: 0, term: true,
	},
	{
		name: "an archive has a link", args: []string{"prefetch", "--unpack", "auto", "URL/src/", "DIR/to"}, setup: (*quiet).linked,
		log: []string{`the archive is not unpacked: its entry "l" is refused: it is a symbolic link`}, code: 78,
	},
	{
		name: "annotations have no effect", args: []string{"inject", "-f", "DIR/job.yaml"},
		setup: func(q *quiet) {
			q.write("job.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, annotations: {stager.dev/in.d: \"s3://d/x/ -> /d\"}}\n")
		},
		log: []string{"level=ERROR .*nothing written: correct what has no effect"}, code: 65,
	},
	{
		name: "the source does not respond", args: []string{"prefetch", "--retry-for", "200ms", "s3://trial/src/", "DIR/to"}, setup: (*quiet).away,
		log: []string{"connection refused"}, code: 69,
	},
	{
		name: "the destination does not respond", plan: strings.Replace(output(", required: true, deadline: 1s", ""), "URL/ckpt/", "s3://trial/ckpt/", 1), setup: (*quiet).away,
		work:   func(q *quiet) { q.write("out/step-1/model", "aaaa"); q.commit("step-1", http.StatusAccepted) },
		status: `"output":"ckpt"`, log: []string{"connection refused", `outputs are not saved: output ckpt: `, "step 1 .*is not safe"}, code: 75, term: true,
		moves: []string{"stager_store_retries_total"},
	},
}

// runs runs another command of stager, whose log belongs to the row.
func (q *quiet) runs(args ...string) {
	q.t.Helper()
	for i, arg := range args {
		args[i] = q.here(arg)
	}
	cmd := exec.Command(q.binary, args...)
	cmd.Stdout, cmd.Stderr = q, q
	if err := cmd.Run(); err != nil {
		q.t.Errorf("%v: %v", args, err)
	}
}

// linked makes a source of one archive, which has a symbolic link.
func (q *quiet) linked() {
	q.t.Helper()
	var packed strings.Builder
	archive := tar.NewWriter(&packed)
	q.must(errors.Join(archive.WriteHeader(&tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "a"}), archive.Close()))
	q.write("src/a.tar", packed.String())
}

// away has stager find its S3 server at a port that this test holds, and on which nobody listens.
func (q *quiet) away() {
	q.t.Helper()
	held, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	q.must(err)
	q.t.Cleanup(func() { syscall.Close(held) })
	q.must(syscall.Bind(held, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := syscall.Getsockname(held)
	q.must(err)
	q.env = []string{
		fmt.Sprintf("AWS_ENDPOINT_URL_S3=http://127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port),
		"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_REGION=us-east-1",
	}
}
