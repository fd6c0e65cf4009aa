package jobspec

import (
	"strings"
	"testing"
)

// Of a Secret with other keys, the named ones become files with the names of credentials, in every
// container that has them.
func TestSecretKeysBecomeItems(t *testing.T) {
	options := "secret=oss-ak&keys=akId:OSS_ACCESS_KEY_ID,akSecret:OSS_ACCESS_KEY_SECRET,OSS_ENDPOINT"
	file := job(`stager.dev/in.d: "oss://b/x/ -> /d ? `+options+`"`, "", "")
	result, err := Inject([]byte(file), Options{})
	if err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(string(result.Output)), " ")
	want := "secret: secretName: oss-ak defaultMode: 292 items: - {key: akId, path: OSS_ACCESS_KEY_ID} - {key: akSecret, path: OSS_ACCESS_KEY_SECRET} - {key: OSS_ENDPOINT, path: OSS_ENDPOINT}"
	if n := strings.Count(flat, want); n != 1 {
		t.Errorf("%d volumes have the items, want 1 with %q:\n%s", n, want, result.Output)
	}
	decodes(t, result.Output)
	holds(t, []byte(file), Options{})
}

func TestSecretKeysAreChecked(t *testing.T) {
	for options, want := range map[string]string{
		"keys=akId:OSS_ACCESS_KEY_ID":                     "the keys are those of a Secret: set secret too",
		"secret=s&keys=akId:OSS_ACCESS_KEY_ID,:x":         "entry 2 is not KEY:NAME",
		"secret=s&keys=a:OSS_SESSION_TOKEN:b":             "entry 1 is not KEY:NAME",
		"secret=s&keys=a:..":                              "entry 1 is not KEY:NAME",
		"secret=s&keys=":                                  "keys has no value",
		"secret=s&keys=a:OSS_ENDPOINT,OSS_ENDPOINT":       "OSS_ENDPOINT appears twice",
		"secret=s&keys=a:hunter2 hunter2,b:OSS_ENDPOINT,": "entry 1 is not KEY:NAME",
	} {
		_, err := Inject([]byte(job(`stager.dev/in.d: "oss://b/x/ -> /d ? `+options+`"`, "", "")), Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: got %v, want one line with %q", options, err, want)
		}
	}
}

// A Secret is mounted once, so two uses must agree.
func TestSecretKeysAreTheSameEverywhere(t *testing.T) {
	first := `stager.dev/in.a: "oss://b/x/ -> /a ? secret=s&keys=akId:OSS_ACCESS_KEY_ID"`
	file := job(first+`, stager.dev/in.b: "oss://b/y/ -> /b ? secret=s"`, "", "")
	_, err := Inject([]byte(file), Options{})
	if want := "the Secret s has other keys in an input or output before"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
