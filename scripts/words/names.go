package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
)

// identifier matches a word that can only be a name in code: with a capital inside, as in runPasses.
var identifier = regexp.MustCompile(`^[A-Za-z]*[a-z][A-Z][A-Za-z]*$`)

// oldNames returns the declarations whose comment begins with another name than theirs: that of an earlier version.
func oldNames(path string) ([]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []string
	report := func(name *ast.Ident, doc *ast.CommentGroup) {
		first, rest, _ := strings.Cut(doc.Text(), " ")
		if first == name.Name || strings.HasPrefix(name.Name, "Test") || strings.HasPrefix(rest, "and ") || strings.HasPrefix(rest, "is written") {
			return
		}
		if strings.EqualFold(first, name.Name) || identifier.MatchString(first) && !terms[strings.TrimSuffix(first, "s")] {
			out = append(out, files.Position(name.Pos()).String()+": the comment of "+name.Name+" begins with "+first)
		}
	}
	for _, declared := range file.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			report(d.Name, d.Doc)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok && len(d.Specs) == 1 {
					report(t.Name, d.Doc)
				}
			}
		}
	}
	return out, nil
}

// terms are words with a capital inside that are no names of this code.
var terms = map[string]bool{"EndpointSlice": true, "NodePort": true, "ClusterIP": true, "iptables": true, "kubeProxy": true}
