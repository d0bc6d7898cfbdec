package profiles

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"synclab/bench/raw"
	"synclab/reports/records"
)

func TestHeaps(t *testing.T) {
	location := func(id uint64, name string) *pprof.Location {
		return &pprof.Location{ID: id, Line: []pprof.Line{{Function: &pprof.Function{ID: id, Name: name}}}}
	}
	cache, decode := location(1, "cache"), location(2, "decode")
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "inuse_objects", Unit: "count"}, {Type: raw.HeapInUse, Unit: "bytes"}},
		Location: []*pprof.Location{cache, decode}, Function: []*pprof.Function{cache.Line[0].Function, decode.Line[0].Function},
		Sample: []*pprof.Sample{
			{Location: []*pprof.Location{cache, decode}, Value: []int64{1, 700}}, {Location: []*pprof.Location{decode}, Value: []int64{9, 200}},
			{Location: []*pprof.Location{cache}, Value: []int64{1, 100}},
		}}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, raw.ProfilesFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, raw.ProfilesFolder, "large.pb.gz"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	record := func(subject string, services int, file string) raw.Record {
		return raw.Record{Metric: raw.HeapProfile, Subject: subject, Services: services, File: file, Value: 1000, Rep: 1}
	}
	run := &records.Run{Dir: dir, Records: []raw.Record{record("s", 5000, "large.pb.gz"), record("s", 100, "small.pb.gz"), record("other", 100, "absent.pb.gz")}}
	heaps, problems := readHeaps([]*records.Run{run})
	if len(problems) != 1 || !strings.Contains(problems[0], "absent.pb.gz") {
		t.Errorf("%q", problems)
	}
	if len(heaps) != 1 || len(heaps[0].Functions) != 2 || heaps[0].Functions[0] != (HeapLine{"cache", 800}) || heaps[0].Functions[1] != (HeapLine{"decode", 200}) {
		t.Errorf("%+v", heaps)
	}
}
