package pai

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/stager-dev/stager/stager/jobspec"
)

func TestFaults(t *testing.T) {
	deep := strings.Repeat("[", 100)
	for _, test := range []struct{ name, file, want string }{
		{"no JSON", "{\n \"jobName\": x}", "line 2, column 13: this is not JSON: "},
		{"a comment that does not end", "{} /*", "line 1, column 4: this is not JSON: "},
		{"deep", deep, "this is not JSON"},
		{"empty", "", "this is not JSON"},
		{"no object", "[]", "line 1, column 1: the job is a list; write it as {…}"},
		{"missing", "{}", "the job has no jobName, which OpenPAI requires; add it\nline 1, column 1: the job has no image, which OpenPAI requires; add it\nline 1, column 1: the job has no taskRoles, which OpenPAI requires; add it"},
		{"no roles", `{"jobName": "j", "image": "i", "taskRoles": []}`, "taskRoles is empty; a job has one task role at least"},
		{"role", `{"jobName": "j", "image": "i", "taskRoles": [{"name": "w"}]}`, "line 1, column 46: task role w has no taskNumber, which OpenPAI requires; add it"},
		{"twice", `{"jobName": "j", "jobName": "k"}`, "column 18: jobName is there twice; keep one"},
		{"bad name", strings.Replace(one("", ""), `"j"`, `"a b"`, 1), `jobName is "a b"; its characters are letters, digits, - . _ and ~`},
		{"bad role", strings.Replace(one("", ""), `"w"`, `"a/b"`, 1), `name is "a/b"; its characters are letters, digits, - . _ and ~`},
		{"kinds", one(`"retryCount": "3",`, `"shmMB": 1.5,`), "line 1, column 46: the job: retryCount is \"3\"; write a whole number\nline 1, column 155: task role w: shmMB is 1.5; write a whole number"},
		{"shared memory", one("", `"shmMB": 2048,`), "task role w: shmMB is 2048 and memoryMB 1024: shared memory is part of the memory; raise memoryMB or lower shmMB"},
		{"too little", strings.Replace(one("", ""), `1024`, `64`, 1), "task role w: memoryMB is 64, and at least 100 is needed"},
		{"fewer retries", one(`"retryCount": -3,`, ""), "it is how often the job is tried again"},
		{"ports", one("", `"portList": [{"label": "a", "beginAt": 8000, "portNumber": 10}, {"label": "b", "beginAt": 8005, "portNumber": 1}],`), "task role w: the ports a and b both begin at 8005 or reach it"},
		{"one label", one("", `"portList": [{"label": "a", "beginAt": 0, "portNumber": 1}, {"label": "a", "beginAt": 0, "portNumber": 1}],`), `two ports have the label "a"`},
		{"far ports", one("", `"portList": [{"label": "a", "beginAt": 65535, "portNumber": 2}],`), "port a: 2 ports from 65535 on pass 65535, the last there is"},
		{"many ports", one("", `"portList": [{"label": "a", "beginAt": 0, "portNumber": 46000}],`), "task role w needs ports up to"},
		{"too many failures", one("", `"minFailedTaskCount": 4,`), "minFailedTaskCount is 4: there are fewer tasks"},
		{"no successes", one("", `"minSucceededTaskCount": 0,`), "minSucceededTaskCount is 0: write 1 or more, or null for never"},
		{"variables", one(`"jobEnvs": {"a b": 1, "PAI_X": 1},`, ""), "jobEnvs: \"a b\" cannot be a variable"},
		{"ours", one(`"jobEnvs": {"PAI_X": 1},`, ""), "jobEnvs: PAI_X is set for every task"},
		{"no file system", one(`"dataDir": "$PAI_DEFAULT_FS_URI/d",`, ""), "column 43: dataDir is in OpenPAI's default file system, which is not said; give its URL by --default-fs, as in hdfs://namenode:8020"},
		{"no user", one(`"dataDir": "s3://b/$PAI_USER_NAME",`, ""), "who submits the job is not said; give it by --user"},
		{"other variables", one(`"dataDir": "s3://b/$PAI_TASK_INDEX",`, ""), "dataDir asks for $PAI_TASK_INDEX, which nothing is known of here"},
		{"no code", one(`"codeDir": "s3://b/",`, ""), "codeDir is the root of its store"},
		{"bad URL", one(`"codeDir": "ftp://b/x",`, ""), "codeDir: ftp is not known"},
		{"large", strings.Repeat(" ", fileMax+1), "the file has 3145729 bytes"},
		{"many tasks", strings.Replace(one("", ""), `"taskNumber": 3`, `"taskNumber": 6000`, 1), "every task lists all others"},
		{"countless tasks", strings.Replace(one("", ""), `"taskNumber": 3`, `"taskNumber": 2147483647`, 1), "every task lists all others"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Convert([]byte(test.file), Options{Inject: jobspec.Options{CheckURL: func(url string) error {
				if strings.HasPrefix(url, "ftp:") {
					return errors.New("ftp is not known")
				}
				return nil
			}}})
			var faults jobspec.Faults
			if !errors.As(err, &faults) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{one(`"retrycount": 1,`, ""), "line 1: the job: retrycount is not known and is left out"},
		{one(`"virtualCluster": "a_b",`, ""), "--queue=none leaves Kueue out"},
		{one(`"gpuType": "K80",`, ""), "gpuType K80 selects no nodes: set their label with --gpu-type K80=LABEL=VALUE"},
		{one(`"authFile": "hdfs://h/a",`, ""), "authFile is not read: pass its three lines with --auth-file"},
		{one(`"retryCount": 1, "outputDir": "s3://b/o",`, ""), "starts with an empty $PAI_OUTPUT_DIR"},
		{one(`"outputDir": "s3://b/o",`, ""), "tasks save what is in $PAI_OUTPUT_DIR apart"},
		{one(`"dataDir": "s3://b/o",`, ""), "set it with --data-size"},
		{one("", ""), "what the tasks leave in $PAI_OUTPUT_DIR is lost"},
		{strings.Replace(one("", ""), `"run"`, `"run ${PAI_NONE}"`, 1), "task role w: the command asks for $PAI_NONE, which is not set"},
		{one(`"jobEnvs": {"isDebug": true},`, ""), "isDebug has no equivalent"},
	} {
		result := convert(t, test.file, Options{})
		if got := strings.Join(result.Warnings, "\n"); !strings.Contains(got, test.want) {
			t.Errorf("%s: warned %q, want %q", test.file, got, test.want)
		}
	}
}

// Comments are recognized only outside of strings: the // of a URL is preserved.
func TestCommentsAndURLs(t *testing.T) {
	r := &reader{text: []byte("\ufeff{ // one\n \"jobName\" /* two */: \"a\", \"dataDir\": \"hdfs://h/a/*b*/c\",\n}")}
	o := r.object(r.parse(), "the job")
	if got := o.text("dataDir", true); got != "hdfs://h/a/*b*/c" || len(r.faults) > 0 {
		t.Errorf("dataDir = %q, want it whole; %v", got, r.faults)
	}
	if line, column := position(r.text, o.at["jobName"]); line != 2 || column != 23 {
		t.Errorf("jobName is at %d:%d, want 2:23", line, column)
	}
}

func TestLocal(t *testing.T) {
	task, err := Local(tutorial(t), "worker", 1, "/tmp/a b", here)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX=1", "PAI_DATA_DIR=/tmp/a b/data", "PAI_CURRENT_CONTAINER_IP=127.0.0.1",
		"PAI_TASK_ROLE_ps_server_HOST_LIST=127.0.0.1:20000,127.0.0.1:20002", "PAI_TASK_ROLE_worker_HOST_LIST=127.0.0.1:20004,127.0.0.1:20006",
	} {
		if !strings.Contains(strings.Join(task.Env, "\n")+"\n", want+"\n") {
			t.Errorf("%s is not in %q", want, task.Env)
		}
	}
	if want := "mkdir -p '/tmp/a b/work' && cd '/tmp/a b/work' || exit\ncp -r '/tmp/a b/code'/* ./ || exit\npip"; !strings.HasPrefix(task.Command[2], want) {
		t.Errorf("the command is %q, want %q first", task.Command[2], want)
	}
	for where, want := range map[string]string{"worker 2": "task role worker has no task 2: it has 2, from 0 on", "wrker 0": "there is no task role wrker; there are ps_server, worker"} {
		name, index, _ := strings.Cut(where, " ")
		if _, err := Local(tutorial(t), name, int(index[0]-'0'), "/tmp/x", here); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", where, err, want)
		}
	}
}

// Any input is either converted to manifests that match Kubernetes' types, or refused.
func FuzzConvert(f *testing.F) {
	f.Add(string(tutorial(f)))
	f.Add(one(`"jobEnvs": {"a": "$(b)\n"}, "extras": {"x": "\u2028"},`, `"minFailedTaskCount": null,`))
	f.Add(one(`"jobEnvs": {"n": "yes", "y": 1.50, "on": "=", "a": "<<", "b": "\u2028x\u0007", "c": "line\n  two\n", "d": " x", "e": "1:30"},`, ""))
	f.Add(strings.Replace(one("", ""), `"run"`, `"\trun \n\n  x\u0085\n"`, 1))
	f.Add("{/* */ \"jobName\": \"http://x\", }// end")
	f.Fuzz(func(t *testing.T, file string) {
		result, err := Convert([]byte(file), here)
		var faults jobspec.Faults
		if err != nil {
			if !errors.As(err, &faults) || len(faults) == 0 {
				t.Errorf("refused by %v", err)
			}
			return
		}
		all := decodes(t, result.Output)
		var pods []corev1.PodSpec
		if all.job != nil {
			pods = append(pods, all.job.Spec.Template.Spec)
		} else {
			for _, r := range all.set.Spec.ReplicatedJobs {
				pods = append(pods, r.Template.Spec.Template.Spec)
			}
		}
		c := &conversion{reader: &reader{text: []byte(file)}, opts: here, root: podRoot}
		if err := c.begin(); err != nil {
			t.Fatal(err)
		}
		for i, role := range c.roles {
			main := pods[i].Containers[0]
			if want := jobspec.Dollars(c.script(role)); main.Command[len(main.Command)-1] != want {
				t.Errorf("the command is %q, want %q at its end", main.Command, want)
			}
			for _, s := range c.environment(role, -1) {
				for _, v := range s.variables {
					if got := main.Env[0]; got.Name != v.name || v.field == "" && got.Value != jobspec.Dollars(v.value) {
						t.Errorf("a variable is %+v, want %+v", got, v)
					}
					main.Env = main.Env[1:]
				}
			}
		}
	})
}
