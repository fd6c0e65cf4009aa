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
		{"no object", "[]", "line 1, column 1: the job is a list; write an object, {…}"},
		{"missing", "{}", "the job has no jobName, which OpenPAI requires; add it\nline 1, column 1: the job has no image, which OpenPAI requires; add it\nline 1, column 1: the job has no taskRoles, which OpenPAI requires; add it"},
		{"no roles", `{"jobName": "j", "image": "i", "taskRoles": []}`, "taskRoles is empty; add at least one task role"},
		{"role", `{"jobName": "j", "image": "i", "taskRoles": [{"name": "w"}]}`, "line 1, column 46: task role w has no taskNumber, which OpenPAI requires; add it"},
		{"twice", `{"jobName": "j", "jobName": "k"}`, "column 18: duplicate jobName; write it once"},
		{"bad name", strings.Replace(one("", ""), `"j"`, `"a b"`, 1), `jobName is "a b"; use only letters, digits, - . _ and ~`},
		{"bad role", strings.Replace(one("", ""), `"w"`, `"a/b"`, 1), `name is "a/b"; use only letters, digits, - . _ and ~`},
		{"kinds", one(`"retryCount": "3",`, `"shmMB": 1.5,`), "line 1, column 46: the job: retryCount is \"3\"; write a whole number\nline 1, column 155: task role w: shmMB is 1.5; write a whole number"},
		{"shared memory", one("", `"shmMB": 2048,`), "task role w: shmMB is 2048 and memoryMB 1024: shared memory is part of the memory; raise memoryMB or lower shmMB"},
		{"too little", strings.Replace(one("", ""), `1024`, `64`, 1), "task role w: memoryMB is 64, which is too small; write 100 or more"},
		{"fewer retries", one(`"retryCount": -3,`, ""), "it is the number of retries; write 0 or more"},
		{"ports", one("", `"portList": [{"label": "a", "beginAt": 8000, "portNumber": 10}, {"label": "b", "beginAt": 8005, "portNumber": 1}],`), "task role w: the ports a and b both contain 8005"},
		{"one label", one("", `"portList": [{"label": "a", "beginAt": 0, "portNumber": 1}, {"label": "a", "beginAt": 0, "portNumber": 1}],`), `two ports have the label "a"`},
		{"far ports", one("", `"portList": [{"label": "a", "beginAt": 65535, "portNumber": 2}],`), "port a: 2 ports from 65535 exceed the highest port, 65535; lower beginAt or portNumber"},
		{"many ports", one("", `"portList": [{"label": "a", "beginAt": 0, "portNumber": 46000}],`), "task role w needs ports up to"},
		{"too many failures", one("", `"minFailedTaskCount": 4,`), "minFailedTaskCount is 4: the role has fewer tasks"},
		{"no successes", one("", `"minSucceededTaskCount": 0,`), "minSucceededTaskCount is 0: write 1 or more, or null for never"},
		{"variables", one(`"jobEnvs": {"a b": 1, "PAI_X": 1},`, ""), "jobEnvs: \"a b\" is not a valid variable name"},
		{"ours", one(`"jobEnvs": {"PAI_X": 1},`, ""), "jobEnvs: PAI_X is reserved"},
		{"no file system", one(`"dataDir": "$PAI_DEFAULT_FS_URI/d",`, ""), "column 43: dataDir is in OpenPAI's default file system, whose URL is unknown; set it with --default-fs, for example hdfs://namenode:8020"},
		{"no user", one(`"dataDir": "s3://b/$PAI_USER_NAME",`, ""), "and the user is unknown; set it with --user"},
		{"other variables", one(`"dataDir": "s3://b/$PAI_TASK_INDEX",`, ""), "dataDir contains the unknown variable $PAI_TASK_INDEX; use $PAI_DEFAULT_FS_URI"},
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

// A URL in a form of Hadoop's that stager does not support is refused with the URL to write instead.
func TestRefusedURLsNameTheRemedy(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"hdfs:/data", `dataDir: "hdfs:/data" names no namenode; write hdfs://namenode:8020/data, or only /data for OpenPAI's default file system`},
		{"hdfs:data", `dataDir: "hdfs:data" is not an absolute path or a URL; write hdfs://namenode:8020/directory, or /directory for OpenPAI's default file system`},
		{"data", `dataDir: "data" is not an absolute path or a URL; write hdfs://namenode:8020/directory, or /directory for OpenPAI's default file system`},
		{"webhdfs://nn:50070/a/b", "dataDir: stager does not support webhdfs; write the namenode and its RPC port, hdfs://namenode:8020/a/b"},
		{"viewfs:///a", "dataDir: stager does not support viewfs; write the namenode and its RPC port, hdfs://namenode:8020/a"},
		{"s3a://b/a", "dataDir: stager does not support s3a; write s3://b/a"},
		{"ftp://h/a", "dataDir: it is refused; write another"},
	} {
		refuse := func(string) error { return errors.New("it is refused; write another") }
		_, err := Convert([]byte(one(`"dataDir": "`+tt.url+`",`, "")), Options{Inject: jobspec.Options{CheckURL: refuse}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.url, err, tt.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{one(`"retrycount": 1,`, ""), "line 1: the job: unknown field retrycount is ignored"},
		{one(`"virtualCluster": "a_b",`, ""), "or use --queue=none without Kueue"},
		{one(`"gpuType": "K80",`, ""), "gpuType K80 selects no nodes; set their label with --gpu-type K80=LABEL=VALUE"},
		{one(`"authFile": "hdfs://h/a",`, ""), "authFile is not read; pass its three lines with --auth-file"},
		{one(`"retryCount": 1, "outputDir": "s3://b/o",`, ""), "starts with an empty $PAI_OUTPUT_DIR"},
		{one(`"outputDir": "s3://b/o",`, ""), "each task saves $PAI_OUTPUT_DIR to its own directory below outputDir"},
		{one(`"dataDir": "s3://b/o",`, ""), "set the size with --data-size"},
		{one("", ""), "files that the tasks leave in $PAI_OUTPUT_DIR are lost"},
		{strings.Replace(one("", ""), `"run"`, `"run ${PAI_NONE}"`, 1), "task role w: the command uses $PAI_NONE, which is not set"},
		{one(`"jobEnvs": {"isDebug": true},`, ""), "isDebug has no special meaning here"},
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
	for where, want := range map[string]string{"worker 2": "task role worker has no task 2; it has 2 tasks, numbered from 0", "wrker 0": "there is no task role wrker; the task roles are ps_server, worker"} {
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
