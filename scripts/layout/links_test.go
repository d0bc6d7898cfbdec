package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	mdCode    = regexp.MustCompile("(?s)```.*?```")
)

// anchors are those that GitHub gives the headings of a document.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range mdHeading.FindAllStringSubmatch(text, -1) {
		out[strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return out
}

// TestLinks: every link between the documents resolves.
func TestLinks(t *testing.T) {
	links := 0
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (strings.HasPrefix(d.Name(), ".git") || d.Name() == "runs" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range mdLink.FindAllStringSubmatch(mdCode.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			stat, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s: link %s: no such file", path, m[1])
				continue
			}
			if anchor == "" || stat.IsDir() || !strings.HasSuffix(target, ".md") {
				continue
			}
			other, err := os.ReadFile(target)
			if err != nil {
				return err
			}
			if !anchors(string(other))[anchor] {
				t.Errorf("%s: link %s: no such heading", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 100 {
		t.Errorf("%d links: the test overlooks some", links)
	}
	t.Logf("%d links", links)
}
