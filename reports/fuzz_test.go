package reports

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzBuild reads runs that anybody may have written: an error, or a report.
func FuzzBuild(f *testing.F) {
	run, err := os.ReadFile("testdata/repetitions/run.json")
	if err != nil {
		f.Fatal(err)
	}
	records, err := os.ReadFile("testdata/repetitions/records.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	few := bytes.Join(bytes.SplitAfterN(records, []byte("\n"), 60)[:59], nil)
	f.Add(run, few)
	f.Add(run, []byte(`{"at":1,"scenario":"steady-churn","subject":"synclab/nftables","services":10,"endpoints":10,"rep":1,"metric":"first_packet","value":1,"unit":"s","target":"clusterIP"}`+"\n"))
	f.Add([]byte(`{"id":"x","scenario":{"name":"engine","targets":[{"figure":"unknown","services":10,"subject":"synclab/nftables","times":2}]},"subjects":["synclab/nftables"]}`), few)
	f.Add([]byte(`{}`), []byte(""))
	f.Fuzz(func(t *testing.T, run, records []byte) {
		dir := t.TempDir()
		for name, text := range map[string][]byte{"run.json": run, "records.jsonl": records} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Build([]string{dir}, dir, Options{NoPNG: true})
		if err != nil {
			return
		}
		if err := s.Table(io.Discard); err != nil {
			t.Error(err)
		}
		page, err := os.ReadFile(filepath.Join(dir, "index.html"))
		if err != nil || strings.Contains(string(page), "<script>alert") {
			t.Errorf("page: %v", err)
		}
	})
}
