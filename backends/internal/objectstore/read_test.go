package objectstore

import (
	"testing"

	"github.com/stager-dev/stager/backends"
)

func TestResponsesThatDoNotMatchTheRequest(t *testing.T) {
	obj := backends.Object{Key: "k", Size: 100, Version: "E"}
	for _, tt := range []struct {
		off, n int64
		answer Response
		want   int64
		kind   backends.Kind // if want is 0
	}{
		{0, -1, Response{200, "E", 100, ""}, 100, backends.Unknown},
		{10, 20, Response{206, "E", 20, "bytes 10-29/100"}, 20, backends.Unknown},
		{10, -1, Response{206, "E", 90, "bytes 10-99/100"}, 90, backends.Unknown},
		{0, 20, Response{200, "E", 100, ""}, 20, backends.Unknown}, // the range was ignored, which is harmless here
		{10, 20, Response{200, "E", 100, ""}, 0, backends.Unsupported},
		{10, 20, Response{206, "F", 20, "bytes 10-29/100"}, 0, backends.Changed},
		{10, 20, Response{206, "E", 20, "bytes 11-30/100"}, 0, backends.Corrupt},
		{10, 20, Response{206, "E", 19, "bytes 10-29/100"}, 0, backends.Corrupt},
		{10, 20, Response{206, "E", 20, "nonsense"}, 0, backends.Corrupt},
		{10, 20, Response{200, "E", 20, "bytes 10-29/100"}, 20, backends.Unknown}, // as rclone does
		{10, -1, Response{200, "E", 90, "bytes 10-99/100"}, 90, backends.Unknown},
		{10, 20, Response{200, "E", 100, "bytes 10-29/100"}, 0, backends.Corrupt},
		{0, -1, Response{200, "E", 99, ""}, 0, backends.Changed},
		{0, -1, Response{200, "E", -1, ""}, 0, backends.Unsupported},
	} {
		got, err := tt.answer.Wanted(obj, tt.off, tt.n)
		if got != tt.want || (err == nil) != (tt.want > 0) || err != nil && backends.KindOf(err) != tt.kind {
			t.Errorf("%d bytes at %d answered with %+v: %d, %v; want %d, kind %v", tt.n, tt.off, tt.answer, got, err, tt.want, tt.kind)
		}
	}
}
