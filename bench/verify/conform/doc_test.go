package conform

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The page of known differences names every entry, and only tests that exist.
func TestDifferencesPage(t *testing.T) {
	const root = "../../.."
	text, err := os.ReadFile(root + "/docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range []string{EntryMoved, EntryTwice, EntryLarge, EntryZone, EntryHints, EntryNode} {
		if !strings.Contains(string(text), "| `"+entry+"` |") {
			t.Errorf("no row for entry %s", entry)
		}
	}
	var tests strings.Builder
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			var source []byte
			source, err = os.ReadFile(path)
			tests.Write(source)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 10 {
		t.Errorf("%d tests named: is the page still a table of them?", len(names))
	}
	for _, name := range names {
		if !strings.Contains(tests.String(), "func "+name[1]+"(t *testing.T)") {
			t.Errorf("the page names %s, which does not exist", name[1])
		}
	}
}
