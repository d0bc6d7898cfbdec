package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// indexFile lists the published results.
const indexFile = "docs/results.md"

var measuredAt = regexp.MustCompile(`(?m)^Measured (\d{4}-\d\d-\d\d) at commit ([0-9a-f]{7,40}), part (\S+) of .*?; (.*)$`)

// index is the page of all published results, derived from the documents below docs.
func index(parts []part, docs string) (string, error) {
	var b strings.Builder
	b.WriteString("# Published results\n\n`make results` measured these with the commands below, and wrote this page. Each result names its machine, versions and seed.\n" +
		"`make results PART=NAME` measures one again.\n\n| result | measured | commit | part | commands |\n| --- | --- | --- | --- | --- |\n")
	for _, p := range parts {
		var files []string
		for _, o := range p.Outputs {
			if !o.picture() && !slices.Contains(files, o.File) {
				files = append(files, o.File)
			}
		}
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(docs, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue // not measured yet
			} else if err != nil {
				return "", err
			}
			for _, m := range measuredAt.FindAllStringSubmatch(string(text), -1) {
				if m[3] != p.Name {
					continue
				}
				link, err := filepath.Rel(filepath.Dir(indexFile), file)
				if err != nil {
					return "", err
				}
				commands := regexp.MustCompile("`[^`]+`").FindAllString(m[4], -1)
				fmt.Fprintf(&b, "| [%s](%s) | %s | %s | %s | %s |\n", p.About, link, m[1], m[2], p.Name, strings.Join(commands, "; "))
				break
			}
		}
	}
	return b.String(), nil
}

func writeIndex(parts []part, docs string) error {
	text, err := index(parts, docs)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, indexFile), []byte(text), 0o644)
}
