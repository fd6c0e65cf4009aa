package params_test

import (
	"net/url"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/params"
)

func TestReadSetsWhatTheURLHas(t *testing.T) {
	type settings struct {
		anonymous, signing bool
		list, user         string
		conns              int
		even               bool
	}
	for query, want := range map[string]struct {
		settings
		err string
	}{
		"":                         {settings{signing: true, list: "auto", conns: 2}, ""},
		"anonymous=&conns=":        {settings{signing: true, list: "auto", conns: 2}, ""},
		"anonymous=T&signing=off":  {settings{anonymous: true, list: "auto", conns: 2}, ""},
		"list=none&user=a&conns=9": {settings{signing: true, list: "none", user: "a", conns: 9}, ""},
		"even=4":                   {settings{signing: true, list: "auto", conns: 2, even: true}, ""},
		"anonymous=on":             {settings{}, `parameter "anonymous" must be true or false, not "on"`},
		"signing=true":             {settings{}, `parameter "signing" must be on or off, not "true"`},
		"list=all":                 {settings{}, `parameter "list" must be auto, directories or none, not "all"`},
		"conns=0":                  {settings{}, `parameter "conns" must be a number from 1 to 9, not "0"`},
		"conns=10":                 {settings{}, `parameter "conns" must be a number from 1 to 9, not "10"`},
		"conns=two":                {settings{}, `parameter "conns" must be a number from 1 to 9, not "two"`},
		"even=3":                   {settings{}, `parameter "even" must be an even digit, not "3"`},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got := settings{signing: true, list: "auto", conns: 2}
		err = params.Read(values,
			params.Bool("anonymous", &got.anonymous),
			params.Switch("signing", &got.signing),
			params.Choice("list", &got.list, "auto", "directories", "none"),
			params.Int("conns", &got.conns, 1, 9),
			params.Text("user", &got.user),
			params.Func("even", "an even digit", func(text string) bool {
				got.even = len(text) == 1 && (text[0]-'0')%2 == 0
				return got.even
			}))
		if want.err != "" {
			if err == nil || err.Error() != want.err || backends.KindOf(err) != backends.Invalid {
				t.Errorf("%q: got %v of kind %v, want %q of kind %v", query, err, backends.KindOf(err), want.err, backends.Invalid)
			}
		} else if err != nil || got != want.settings {
			t.Errorf("%q: got %+v, %v, want %+v", query, got, err, want.settings)
		}
	}
}
