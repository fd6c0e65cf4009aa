package reference

import (
	"regexp"
	"strings"
	"testing"
)

// Each field on the pages of outputs and of the API has a meaning, and each of the meanings here is
// that of a field.
func TestFieldsHaveMeanings(t *testing.T) {
	p, err := readProgram("../..")
	if err != nil {
		t.Fatal(err)
	}
	empty := regexp.MustCompile("(?m)^\\| `\\w+` \\| .* \\|  \\|$")
	for name, make := range map[string]func(*program) (string, error){"output": outputPage, "api": apiPage} {
		text, err := make(p)
		if err != nil {
			t.Fatal(err)
		}
		_, types, ok := strings.Cut(text, "\n## Types\n")
		if found := empty.FindString(types); found != "" || !ok {
			t.Errorf("%s: got the row %q, want a meaning", name, found)
		}
	}
	if _, err := openAPI(p); err != nil {
		t.Fatal(err)
	}
	for name := range meanings {
		if !p.meant[name] {
			t.Errorf("no field without a comment needs the meaning of %s", name)
		}
	}
}

func TestFieldWithoutMeaningIsRefused(t *testing.T) {
	p, err := readProgram("../..")
	if err != nil {
		t.Fatal(err)
	}
	text := meanings["bucket"]
	delete(meanings, "bucket")
	defer func() { meanings["bucket"] = text }()
	if _, err := outputPage(p); err == nil || !strings.Contains(err.Error(), "has no meaning: give it a comment") {
		t.Errorf("got %v, want an error that names the field", err)
	}
}
