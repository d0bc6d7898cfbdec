// Package layout checks which packages may import which, and how large a package may be.
package layout

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// top is the repository's folder, seen from this package.
const top = "../.."

// rooms are the top folders in the order of the data, after internal, which all of them may use. Code imports its own folder
// and earlier ones.
var rooms = []string{"internal", "scenarios", "sim", "proxier", "bench", "reports", "cmd", "scripts"}

// forbidden are imports that the order would allow: importer (with its subfolders) → imported (with its subfolders).
var forbidden = map[string][]string{
	"proxier": {"sim", "scenarios"}, // a proxier does not depend on the lab
}

// inTests are packages that all tests may import: namespaces, and the ruleset evaluator. The evaluator is the oracle for what a
// proxier writes, and no part of a proxier.
var inTests = []string{"bench/lab/netns", "bench/verify/walk"}

// mostFiles is the largest number of files in a package, without tests.
const mostFiles = 25

// source is one Go file.
type source struct {
	folder  string // "bench/lab/netns"
	name    string
	imports []string // of this module, without its name
	test    bool
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	for _, room := range rooms {
		err := filepath.WalkDir(filepath.Join(top, room), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.Contains(path, "/testdata/") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(top, path)
			if err != nil {
				return err
			}
			one := source{folder: filepath.Dir(relative), name: relative, test: strings.HasSuffix(path, "_test.go")}
			for _, spec := range file.Imports {
				text, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return err
				}
				if own, ok := strings.CutPrefix(text, "synclab/"); ok {
					one.imports = append(one.imports, own)
				}
			}
			all = append(all, one)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func roomOf(folder string) string {
	room, _, _ := strings.Cut(folder, "/")
	return room
}

// within reports whether a folder is another one or lies below it.
func within(folder, outer string) bool {
	return folder == outer || strings.HasPrefix(folder, outer+"/")
}

// mayImport returns why a file may not import a package; empty: it may.
func mayImport(from source, to string) string {
	if from.test && slices.Contains(inTests, to) {
		return ""
	}
	if slices.Index(rooms, roomOf(to)) > slices.Index(rooms, roomOf(from.folder)) && !from.test {
		return roomOf(to) + "/ comes after " + roomOf(from.folder) + "/"
	}
	if !from.test {
		for importer, imported := range forbidden {
			if within(from.folder, importer) && slices.ContainsFunc(imported, func(outer string) bool { return within(to, outer) }) {
				return importer + "/ is not to know it"
			}
		}
	}
	return ""
}

func TestImports(t *testing.T) {
	for _, file := range sources(t) {
		for _, imported := range file.imports {
			if why := mayImport(file, imported); why != "" {
				t.Errorf("%s imports %s: %s", file.name, imported, why)
			}
		}
	}
}

// TestImportsAreChecked breaks each rule.
func TestImportsAreChecked(t *testing.T) {
	for _, c := range []struct {
		from    source
		to      string
		allowed bool
	}{
		{source{folder: "reports"}, "bench", true},
		{source{folder: "bench"}, "reports/plan", false},
		{source{folder: "sim"}, "proxier/runner", false},
		{source{folder: "proxier/plan"}, "sim", false},
		{source{folder: "proxier/plan"}, "scenarios", false},
		{source{folder: "proxier/plan"}, "internal/inet", true},
		{source{folder: "internal/inet"}, "proxier", false},
		{source{folder: "proxier/plan", test: true}, "bench/lab/netns", true},
		{source{folder: "proxier/plan"}, "bench/lab/netns", false},
		{source{folder: "proxier/nftables", test: true}, "bench/verify/walk", true},
		{source{folder: "proxier/nftables"}, "bench/verify/walk", false},
	} {
		if why := mayImport(c.from, c.to); (why == "") != c.allowed {
			t.Errorf("%s → %s: %q", c.from.folder, c.to, why)
		}
	}
}

func TestSizes(t *testing.T) {
	files := map[string]int{}
	for _, file := range sources(t) {
		if !file.test {
			files[file.folder]++
		}
	}
	for folder, n := range files {
		if n > mostFiles {
			t.Errorf("%s has %d files without tests, want at most %d", folder, n, mostFiles)
		}
	}
}
