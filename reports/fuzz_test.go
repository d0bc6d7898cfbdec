package reports

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synclab/bench/outfile"
	"synclab/reports/front"
	"synclab/reports/plots"
	"synclab/reports/records"
)

// FuzzBuild reads untrusted runs. Build returns an error or writes a report.
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
		if err := front.Terminal(io.Discard, s); err != nil {
			t.Error(err)
		}
		page, err := os.ReadFile(filepath.Join(dir, "index.html"))
		if err != nil || strings.Contains(string(page), "<script>alert") {
			t.Errorf("page: %v", err)
		}
	})
}

// FuzzLoadShards reads untrusted folders of shards. The result is an error or one run.
func FuzzLoadShards(f *testing.F) {
	run, err := os.ReadFile("testdata/repetitions/run.json")
	if err != nil {
		f.Fatal(err)
	}
	shard := func(text string) []byte {
		return bytes.Replace(run, []byte("{"), []byte(`{"shard":`+text+`,`), 1)
	}
	f.Add(shard(`{"shard":0,"of":2,"sweep":"a"}`), shard(`{"shard":1,"of":2,"sweep":"a"}`))
	f.Add(run, shard(`{"shard":1,"of":2,"sweep":"a"}`))
	f.Add(shard(`{"shard":1,"of":2000000000,"sweep":"a"}`), shard(`{"shard":2,"of":2000000000,"sweep":"a"}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		dir := t.TempDir()
		for name, text := range map[string][]byte{"shard-0-of-2": first, "shard-1-of-2": second} {
			folder := filepath.Join(dir, name)
			if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(filepath.Join(folder, "run.json"), text, 0o600),
				os.WriteFile(filepath.Join(folder, "records.jsonl"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if l, err := records.Load(dir); err == nil && len(l.Missing) > records.MaxShards {
			t.Errorf("%d shards are missing", len(l.Missing))
		}
	})
}

// FuzzRemoveEarlier reads untrusted summaries. Only plots are removed.
func FuzzRemoveEarlier(f *testing.F) {
	f.Add([]byte(`{"plots":[{"svg":"a.svg","png":"a.png"}]}`))
	f.Add([]byte(`{"plots":[{"svg":"records.jsonl","png":"../kept/a.svg"},{"svg":".."},{"png":"/kept"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		out, kept := filepath.Join(dir, "out"), filepath.Join(dir, "kept")
		if err := errors.Join(os.Mkdir(out, 0o700), os.Mkdir(kept, 0o700)); err != nil {
			t.Fatal(err)
		}
		stay := []string{filepath.Join(kept, "a.svg"), filepath.Join(out, "records.jsonl"), filepath.Join(out, "run.json")}
		for _, path := range append([]string{filepath.Join(out, "a.svg")}, stay...) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(out, "summary.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		folder, err := outfile.OpenFolder(out)
		if err != nil {
			t.Fatal(err)
		}
		_ = plots.RemoveEarlier(folder)
		folder.Close()
		for _, path := range stay {
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
	})
}
