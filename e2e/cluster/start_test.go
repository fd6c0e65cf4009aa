package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stager-dev/stager/e2e/servers"
)

var startBlock = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")

// varying is what differs each time in what stager status prints: numbers, units and the reader's
// line, which is there between two shards only.
var varying = regexp.MustCompile(`\d+(\.\d+)?( [KM]iB| B)?|(?m)^  reader .*\n`)

func steady(text string) string {
	return strings.Join(strings.Fields(varying.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "  reader") {
			return ""
		}
		return "N"
	})), " ")
}

// followsStartPage runs the commands of docs/start/kubernetes.md in an empty directory, with nothing
// added but the names and addresses of this cluster. The text after a block is what it prints; of a
// running stager's state all but the numbers.
func followsStartPage(t *testing.T, c *cluster, s3 *servers.S3) {
	real := strings.NewReplacer(
		"https://s3.example.com", s3.Endpoint, "AWS_REGION=us-east-1", "AWS_REGION="+s3.Region, "=KEY", "="+s3.AccessKey, "=SECRET", "="+s3.SecretKey,
		"registry.example.com/stager:0.1.0", stagerImage, "--image $IMAGE", "--image $IMAGE --image-pull-policy Never",
		"        image: busybox\n", "        image: "+trainerImage+"\n        imagePullPolicy: Never\n",
	)
	if err := os.MkdirAll(filepath.Join(c.file("s3"), "objects", "first"), 0o755); err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	j := &job{c: c, s3: s3, name: "first"}
	var command, printed string
	for _, block := range startBlock.FindAllStringSubmatch(read(t, "../../docs/start/kubernetes.md"), -1) {
		if block[1] == "text" {
			if steady(printed) != steady(block[2]) || !strings.Contains(command, "status") && printed != block[2] {
				t.Errorf("%s\ngot\n%s\nwant\n%s", command, printed, block[2])
			}
			continue
		}
		command = block[2]
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", real.Replace(command))
		cmd.Dir, cmd.Env = work, c.environ()
		var err error
		if printed, err = output(cmd); err != nil {
			j.tell(t)
			t.Fatalf("%s\n%v\n%s", command, err, printed)
		}
	}
	if !strings.Contains(command, "kubectl delete") || printed != "" {
		t.Errorf("the last block is %q and printed %q, want nothing left", command, printed)
	}
}

// environ is the environment of a user of the cluster, with the programs on PATH.
func (c *cluster) environ(more ...string) []string {
	return append(append(os.Environ(), "KUBECONFIG="+c.admin, "PATH="+c.bin+string(os.PathListSeparator)+os.Getenv("PATH")), more...)
}
