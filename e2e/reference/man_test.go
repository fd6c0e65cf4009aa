package reference

import (
	"strings"
	"testing"
)

func TestManPagesEscapeText(t *testing.T) {
	c := &CLI{
		About:     "Stages data.\n\nExit codes: …",
		ExitCodes: []ExitCode{{Code: 75, Meaning: "`inject`: later"}},
		Commands: []Command{{
			Name: "pai convert", Group: "Jobs", Usage: "stager pai convert <file>", Help: "Convert a job.",
			Long:  ".hidden files\n\n    stager pai convert a\\b\n    'quoted'",
			Flags: []Flag{{Name: "data-size", Type: "size", Default: "0", Env: "STAGER_DATA_SIZE", Help: "Size."}},
		}},
	}
	pages := ManPages(c, "0.1.0")
	if len(pages) != 2 {
		t.Fatalf("got %d pages, want stager.1 and stager-pai-convert.1", len(pages))
	}
	for page, wants := range map[string][]string{
		"stager.1": {".TH STAGER 1 \"\" \"stager 0.1.0\"", "\nStages data.\n", ".BR stager\\-pai\\-convert (1)\nConvert a job.\n", ".B 75\ninject: later\n"},
		"stager-pai-convert.1": {
			"stager\\-pai\\-convert \\- convert a job\n", "\n\\&.hidden files\n", ".nf\nstager pai convert a\\eb\n\\&'quoted'\n.fi\n",
			".B \\-\\-data\\-size\nSize. Default: 0. ($STAGER_DATA_SIZE)\n",
		},
	} {
		for _, want := range wants {
			if got := string(pages[page]); !strings.Contains(got, want) {
				t.Errorf("%s: got\n%s\nwant it to contain\n%s", page, got, want)
			}
		}
	}
}
