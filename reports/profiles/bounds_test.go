package profiles

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"synclab/bench/raw"
	"synclab/reports/records"
)

// A profile that no run can have written is an error, whatever it unpacks to.
func TestRefusesBombs(t *testing.T) {
	function := &pprof.Function{ID: 1, Name: "f"}
	location := &pprof.Location{ID: 1, Line: []pprof.Line{{Function: function}}}
	profile := func(depth int, values ...int64) []byte {
		types := make([]*pprof.ValueType, len(values))
		for i := range types {
			types[i] = &pprof.ValueType{Type: "cpu", Unit: "ns"}
		}
		stack := make([]*pprof.Location, depth)
		for i := range stack {
			stack[i] = location
		}
		var b bytes.Buffer
		p := &pprof.Profile{SampleType: types, Function: []*pprof.Function{function}, Location: []*pprof.Location{location},
			Sample: []*pprof.Sample{{Location: stack, Value: values}}}
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	var zeros bytes.Buffer
	w := gzip.NewWriter(&zeros)
	for range largest>>20 + 1 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := bounded(bytes.Repeat([]byte{2<<3 | 2, 0}, mostFields+1)); err == nil || !strings.Contains(err.Error(), "more than 1000000") {
		t.Errorf("empty samples: %v", err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, raw.ProfilesFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"a profile":       {profile(deepest, 1, 1), ""},
		"a deep stack":    {profile(1_000_000, 1, 1), "sample 0 has 1000000 functions"},
		"negative values": {profile(3, 1, -1), "values [1 -1]"},
		"other values":    {profile(3, 1), "1 values in each sample"},
		"zeros":           {zeros.Bytes(), "larger than 64 MiB when unpacked"},
		"no gzip":         {[]byte("no gzip, but a text"), "invalid header"},
	} {
		if err := os.WriteFile(filepath.Join(dir, raw.ProfilesFolder, "a.pb.gz"), c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		run := &records.Run{Dir: dir, Records: []raw.Record{{Metric: raw.ProfiledSyncs, Kind: Kinds[0], Value: 1, Rep: 1}}}
		_, err := add(nil, run, records.Record{Record: &raw.Record{File: "a.pb.gz", Rep: 1}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzProfile reads untrusted profiles: an error, or functions and a drawing.
func FuzzProfile(f *testing.F) {
	var b bytes.Buffer
	types := []*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "ns"}}
	function := &pprof.Function{ID: 1, Name: "f"}
	location := &pprof.Location{ID: 1, Line: []pprof.Line{{Function: function}}}
	p := &pprof.Profile{SampleType: types, Function: []*pprof.Function{function}, Location: []*pprof.Location{location},
		Sample: []*pprof.Sample{{Location: []*pprof.Location{location, location}, Value: []int64{1, 1e6}, Label: map[string][]string{"kind": {Kinds[0]}}}}}
	if err := p.WriteUncompressed(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Close(), os.Mkdir(filepath.Join(dir, raw.ProfilesFolder), 0o700),
			os.WriteFile(filepath.Join(dir, raw.ProfilesFolder, "a.pb.gz"), packed.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		run := &records.Run{Dir: dir}
		for _, kind := range Kinds {
			run.Records = append(run.Records, raw.Record{Metric: raw.ProfiledSyncs, Kind: kind, Value: 1, Rep: 1})
		}
		all, err := add(nil, run, records.Record{Record: &raw.Record{File: "a.pb.gz", Rep: 1}})
		if err != nil {
			return
		}
		for _, p := range all {
			p.finish()
			if svg := p.Flame(); bytes.Contains(svg, []byte("<script")) {
				t.Errorf("%s", svg)
			}
		}
	})
}
