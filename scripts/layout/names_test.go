package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mention is a name of another package in a comment, such as api.Cluster, sim/api or bench/lab/netns.
var mention = regexp.MustCompile(`(?:^|[\s(])([a-z][a-z0-9]*(?:/[a-z0-9_-]+)*)(?:\.(\w+))?`)

// The packages and names that comments mention exist.
func TestNamesInComments(t *testing.T) {
	names, comments := map[string]map[string]bool{}, map[string][]string{} // by package name; by file
	folders := map[string]bool{}
	for _, room := range rooms {
		err := filepath.WalkDir(filepath.Join(top, room), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.Contains(path, "/testdata/") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			relative, err := filepath.Rel(top, filepath.Dir(path))
			if err != nil {
				return err
			}
			folders[relative] = true
			if names[file.Name.Name] == nil {
				names[file.Name.Name] = map[string]bool{}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					names[file.Name.Name][id.Name] = true // declared or used there: enough to find names that are gone
				}
				return true
			})
			for _, group := range file.Comments {
				comments[path] = append(comments[path], strings.ReplaceAll(group.Text(), "\n", " "))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(comments)) {
		for _, m := range mention.FindAllStringSubmatch(strings.Join(comments[path], " "), -1) {
			room, _, below := strings.Cut(m[1], "/")
			pkg := m[1][strings.LastIndex(m[1], "/")+1:]
			switch {
			case below && m[2] == "" && slices.Contains(rooms, room) && !folders[m[1]]:
				t.Errorf("%s: a comment mentions %s, which does not exist", path, m[1])
			case m[2] != "" && ast.IsExported(m[2]) && names[pkg] != nil && !names[pkg][m[2]]:
				t.Errorf("%s: a comment mentions %s.%s, which does not exist", path, m[1], m[2])
			}
		}
	}
	if len(comments) < 500 {
		t.Errorf("%d files with comments", len(comments))
	}
}
