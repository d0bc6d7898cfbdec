package manifests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"synclab/sim"
)

const corpus = "testdata/corpus"

// TestCorpus reads each file and folder of the corpus, and compares the outcome with the entry of outcomes.txt. An entry
// begins with a line "== name: what it is"; a new file needs this line, and -update-manifests writes the rest.
func TestCorpus(t *testing.T) {
	list := filepath.Join(corpus, "outcomes.txt")
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	_, entries, _ := strings.Cut("\n"+string(text), "\n== ")
	var rewritten strings.Builder
	listed := map[string]bool{"outcomes.txt": true}
	for entry := range strings.SplitSeq(entries, "\n== ") {
		title, want, _ := strings.Cut(entry, "\n")
		name, _, _ := strings.Cut(title, ":")
		listed[name] = true
		got := outcome(t, name)
		fmt.Fprintf(&rewritten, "== %s\n%s", title, got)
		if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(got)); diff != "" && !*updateGolden {
			t.Errorf("%s (-want +got)\n%s", title, diff)
		}
	}
	if *updateGolden {
		if err := os.WriteFile(list, []byte(rewritten.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(corpus)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !listed[file.Name()] {
			t.Errorf("%s lacks %s", list, file.Name())
		}
	}
}

// outcome reads an input, and says what the reader made of it.
func outcome(t *testing.T, name string) string {
	var b strings.Builder
	say := func(what string, line any) {
		text := strings.ReplaceAll(fmt.Sprint(line), corpus+"/", "")
		fmt.Fprintf(&b, "%s: %s\n", what, strings.ReplaceAll(text, "\n", "\n\t"))
	}
	opts := ReadOptions{
		LeftOut: func(l LeftOut) { say("left out", l) },
		Warned:  func(w Warning) { say("warning", w) },
	}
	objects, err := ReadObjects([]string{filepath.Join(corpus, name)}, nil, opts)
	for _, word := range []string{"json: ", "Go ", "interface {}", "int32", "[]string"} {
		if err != nil && strings.Contains(strings.ReplaceAll(err.Error(), name, ""), word) {
			t.Errorf("%s: the error is not in plain words: %v", name, err)
		}
	}
	if err != nil {
		var fault *InputError
		if !errors.As(err, &fault) {
			t.Errorf("%s: error without a place: %v", name, err)
		}
		say("refused", err)
		return b.String()
	}
	endpoints := 0
	for _, slice := range objects.Slices {
		endpoints += len(slice.Endpoints)
	}
	say("read", fmt.Sprintf("%d Services, %d EndpointSlices with %d endpoints, %d Nodes",
		len(objects.Services), len(objects.Slices), endpoints, len(objects.Nodes)))
	if endpoints < 20 {
		for line := range strings.Lines(proxyView(objects)) {
			b.WriteString("  " + line)
		}
	}
	checkIdentities(t, name, objects)
	return b.String()
}

// checkIdentities requires a UID of each object.
func checkIdentities(t *testing.T, name string, o *sim.Objects) {
	var all []metav1.Object
	for _, s := range o.Services {
		all = append(all, s)
	}
	for _, s := range o.Slices {
		all = append(all, s)
	}
	for _, n := range o.Nodes {
		all = append(all, n)
	}
	for _, object := range all {
		if object.GetUID() == "" {
			t.Errorf("%s: %s/%s has no UID", name, object.GetNamespace(), object.GetName())
		}
	}
}
