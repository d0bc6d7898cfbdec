package host

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"synclab/bench/raw"
)

func TestReadHeap(t *testing.T) {
	profile := func(kind string) string {
		f := &pprof.Function{ID: 1, Name: "f"}
		l := &pprof.Location{ID: 1, Line: []pprof.Line{{Function: f}}}
		p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: kind, Unit: "bytes"}}, Function: []*pprof.Function{f}, Location: []*pprof.Location{l},
			Sample: []*pprof.Sample{{Location: []*pprof.Location{l}, Value: []int64{40}}, {Location: []*pprof.Location{l}, Value: []int64{2}}}}
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, c := range []struct {
		status     int
		text, want string
	}{
		{200, profile(raw.HeapInUse), ""}, {200, profile("cpu"), "no values of inuse_space"}, {200, "no profile", "unrecognized"}, {404, "", "404"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.text))
		}))
		content, inUse, err := readHeap(t.Context(), server.URL)
		server.Close()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if err == nil && (inUse != 42 || string(content) != c.text) {
			t.Errorf("%d bytes in use", inUse)
		}
	}
}
