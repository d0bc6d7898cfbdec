package reportstest

import (
	"bytes"
	"encoding/json"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The folder of commands that tests need has axe-core, too: CI puts it there.
const axeFile = "synclab/tests/axe.min.js"

var axeResult = regexp.MustCompile(`(?s)<pre id="axe">(.*?)</pre>`)

// CheckAccess fails for what axe-core calls serious or critical on a page, in Chromium, light and dark. In dark, only colours
// differ.
func CheckAccess(t *testing.T, page []byte) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	axe, err := os.ReadFile(filepath.Join(cache, axeFile))
	if err != nil {
		t.Skip("axe-core is not there: ", err)
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	const run = `<script src="axe.min.js"></script><script>
axe.run(matchMedia("(prefers-color-scheme: dark)").matches ? { runOnly: ["color-contrast"] } : {}).then(function (r) {
  const found = r.violations.map((v) => ({ ID: v.id, Impact: v.impact, Help: v.help, N: v.nodes.length,
    Where: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " — " + n.any.concat(n.all, n.none).map((c) => c.message).join("; ")) }));
  const pre = document.createElement("pre");
  pre.id = "axe";
  pre.textContent = JSON.stringify(found);
  document.body.replaceChildren(pre);
});</script></body>`
	checked := bytes.Replace(page, []byte("</body>"), []byte(run), 1)
	file := filepath.Join(dir, "page.html")
	for name, text := range map[string][]byte{file: checked, filepath.Join(dir, "axe.min.js"): axe} {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, scheme := range map[string]string{"light": "1", "dark": "0"} {
		out, err := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+filepath.Join(dir, name), "--blink-settings=preferredColorScheme="+scheme,
			"--virtual-time-budget=120000", "--window-size=1300,1000", "--dump-dom", "file://"+file).Output()
		m := axeResult.FindSubmatch(out)
		if err != nil || m == nil {
			t.Fatalf("%s: no result of axe-core: %v", name, err)
		}
		var found []struct {
			ID, Impact, Help string
			N                int
			Where            []string
		}
		if err := json.Unmarshal([]byte(html.UnescapeString(string(m[1]))), &found); err != nil {
			t.Fatal(err)
		}
		for _, v := range found {
			if v.Impact == "serious" || v.Impact == "critical" {
				t.Errorf("%s: %s, %s (%d places), such as %q", name, v.ID, v.Help, v.N, v.Where)
			} else {
				t.Logf("%s: %s, %s: %s (%d places)", name, v.Impact, v.ID, v.Help, v.N)
			}
		}
	}
}
