package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// randomTests returns the tests of a folder that use package seedstest, directly or by calls. Functions are identified by
// name only: of two methods with one name, both count if one does.
func randomTests(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	uses := map[string]map[string]bool{} // function: the names in it
	asks := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse: %w", err)
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				names, asking := namesIn(f.Body)
				asks[f.Name.Name] = asks[f.Name.Name] || asking
				if uses[f.Name.Name] == nil {
					uses[f.Name.Name] = map[string]bool{}
				}
				for _, name := range names {
					uses[f.Name.Name][name] = true
				}
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for f, names := range uses {
			for name := range names {
				if asks[name] && !asks[f] {
					asks[f], changed = true, true
				}
			}
		}
	}
	var tests []string
	for f, asking := range asks {
		if asking && strings.HasPrefix(f, "Test") && f != "TestMain" {
			tests = append(tests, f)
		}
	}
	slices.Sort(tests)
	return tests, nil
}

// namesIn returns the names in a function's body. asking: the body itself uses package seedstest.
func namesIn(body *ast.BlockStmt) (names []string, asking bool) {
	if body == nil {
		return nil, false
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "seedstest" && ast.IsExported(n.Sel.Name) {
				asking = true
			}
		case *ast.Ident:
			names = append(names, n.Name)
		}
		return true
	})
	return names, asking
}
