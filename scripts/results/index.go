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

// indexFile has the list of the published results, in block indexBlock.
const indexFile, indexBlock = "docs/results.md", "index"

var measuredAt = regexp.MustCompile("(?m)^Measured (\\d{4}-\\d\\d-\\d\\d) at commit ([0-9a-f]{7,40}), part (\\S+) of `make results`: (.*?; Linux [^,]+)")

// index is the list of all published results, derived from the documents below docs: a row a part. What was not measured on the
// machine or at the commit of the first is marked.
func index(parts []part, docs string) (string, error) {
	var b strings.Builder
	b.WriteString("| what | pages | measured | part |\n| --- | --- | --- | --- |\n")
	var commit, machine string
	for _, p := range parts {
		var files, links, times []string
		for _, o := range p.Outputs {
			if o.picture() || slices.Contains(files, o.File) {
				continue
			}
			files = append(files, o.File)
			text, err := os.ReadFile(filepath.Join(docs, o.File))
			if errors.Is(err, fs.ErrNotExist) {
				continue // not measured yet
			} else if err != nil {
				return "", err
			}
			all := measuredAt.FindAllStringSubmatch(string(text), -1)
			i := slices.IndexFunc(all, func(m []string) bool { return m[3] == p.Name })
			if i < 0 {
				continue
			}
			m := all[i]
			link, err := filepath.Rel(filepath.Dir(indexFile), o.File)
			if err != nil {
				return "", err
			}
			links = append(links, fmt.Sprintf("[%s](%s)", strings.TrimPrefix(link, "../"), link))
			if commit == "" {
				commit, machine = m[2], m[4]
			}
			when := m[1] + " at " + m[2]
			if m[2] != commit {
				when += ", **other commit**"
			}
			if m[4] != machine {
				when += ", **other machine**"
			}
			if !slices.Contains(times, when) {
				times = append(times, when)
			}
		}
		if len(links) > 0 {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.About, strings.Join(links, ", "), strings.Join(times, "; "), p.Name)
		}
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// writeIndex writes the list into its page, which it makes if there is none.
func writeIndex(parts []part, docs string) error {
	text, err := index(parts, docs)
	if err != nil {
		return err
	}
	path := filepath.Join(docs, indexFile)
	page, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		page, err = fmt.Appendf(nil, "# Published results\n\n<!-- results:%[1]s -->\n<!-- /results:%[1]s -->\n", indexBlock), nil
	}
	if err != nil {
		return err
	}
	written, err := replaceBlock(string(page), indexBlock, text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(written), 0o644)
}
