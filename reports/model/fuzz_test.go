package model

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// FuzzLoad reads untrusted cost models. Load returns an error, or a model that answers without a panic.
func FuzzLoad(f *testing.F) {
	m, here := smallModel(f)
	dir := f.TempDir()
	if err := m.Write(dir); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"confidence":0.9,"subjects":[{"name":"x","terms":[{"quantity":"total","form":{"state":"sum"}}]}]}`))
	f.Add([]byte(`{"confidence":0.9,"subjects":[null]}`))
	here.Elsewhere, here.Subjects = true, nil
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), File)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		m, _, err := Load(path, here)
		if err != nil {
			return
		}
		for _, s := range m.Subjects {
			for _, kind := range []string{Full, Partial} {
				_, _ = s.Predict(Query{Quantity: Total, Kind: kind, Services: 20000, Endpoints: 10, Changed: 1})
			}
			_, _ = s.Predict(Query{Quantity: PeakRSS, Services: 20000, Endpoints: 10})
		}
		if m.Validation != nil {
			_ = m.Validation.WriteTable(io.Discard)
		}
	})
}
