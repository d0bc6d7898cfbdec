package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the expected outcomes anew")

// Configurations of every kind that people keep, each with its outcome beside it: what is noted, or why it is refused. A
// strict reader refuses more.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "corpus", "*"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		if filepath.Ext(path) == ".want" {
			continue
		}
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, strict := range []bool{false, true} {
				cfg, notes, err := Parse(name, text, LoadOptions{Strict: strict, Minor: 37})
				if strict {
					if err != nil && strings.HasPrefix(b.String(), "accepted") {
						fmt.Fprintf(&b, "refused if strict: %v\n", err)
					}
					continue
				}
				if err != nil {
					fmt.Fprintf(&b, "refused: %v\n", err)
					var field *FieldError
					if !errors.As(err, &field) {
						t.Errorf("%T holds no *FieldError", err)
					}
					continue
				}
				fmt.Fprintf(&b, "accepted: %s\n", strings.Join(Changed(cfg), ", "))
				for _, note := range notes {
					fmt.Fprintln(&b, "note:", note)
				}
			}
			if got := b.String(); strings.Contains(got, "interface {}") || strings.Contains(got, "v1alpha1.") || strings.Contains(got, "Go ") {
				t.Errorf("a Go type in a message: %s", got)
			}
			golden := path + ".want"
			if *update {
				if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
				t.Errorf("outcome (-want +got), -update writes it anew:\n%s", diff)
			}
		})
	}
}
