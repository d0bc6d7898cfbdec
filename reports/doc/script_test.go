package doc

import (
	"encoding/json"
	"html"
	"image/color"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScript uses the page's script in Chromium: it sorts, filters, copies as CSV, shows values and hides series.
func TestScript(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip(err)
	}
	table := &Table{Title: "Times", Columns: []Column{{Name: "Name"}, {Name: "Time", Numeric: true, Title: "explained"}}}
	table.Add(Text("b, the second"), Value(2e-3, "s"))
	table.Add(Text("a"), Value(1, "s"))
	table.Add(Cell{Text: "c", Color: color.NRGBA{R: 255, A: 255}}, Value(3e-4, "s"))
	plot := Plot{Name: "p", Title: "plot", Markup: []byte(`<svg width="5in" height="5in" viewBox="0 0 100 100"><path id="curve" d="M0,50L90,60" style="stroke:#FF0000"/></svg>`),
		Places: `<rect class="toggle" x="0" y="0" width="20" height="5" data-color="FF0000" aria-label="Show red"/>` +
			`<rect class="hot" x="10" y="50" width="5" height="5" data-of="FF0000" data-tip="one"/><rect class="hot" x="30" y="50" width="5" height="5" data-of="FF0000" data-tip="two"/>`}
	d := &Document{Title: "Title", Sections: []Section{{ID: "s", Title: "S", Filter: true, Blocks: []Block{{Table: table}, {Plots: []Plot{plot}}, {Code: "synclab run"}}}}}
	const use = `<script>
const out = {}, first = () => document.querySelector("tbody tr:not([hidden]) th").textContent;
const q = (s) => document.querySelector(s);
const button = q("th:nth-child(2) button"), tip = q(".tip");
button.click(); out.ascending = first();
button.click(); out.descending = first(); out.sort = q("th:nth-child(2)").getAttribute("aria-sort");
const filter = q("input.filter"); filter.value = "SECOND"; filter.dispatchEvent(new Event("input")); out.filtered = first();
filter.value = ""; filter.dispatchEvent(new Event("input"));
Object.defineProperty(navigator, "clipboard", { value: { writeText: (text) => { out.csv = text; return Promise.resolve(); } } });
q(".tools button").click();
q("td").click(); out.tip = tip.textContent;
// A browser without a window may give the page no focus, and then sends no events of it.
for (const of of [HTMLElement.prototype, SVGElement.prototype]) {
  const focus = of.focus;
  of.focus = function () { focus.call(this); if (!document.hasFocus()) this.dispatchEvent(new FocusEvent("focusin", { bubbles: true })); };
}
const hots = document.querySelectorAll(".hot"); hots[0].focus(); out.focus = tip.textContent;
hots[0].dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true })); out.next = tip.textContent;
document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" })); out.escaped = String(tip.hidden);
q(".toggle").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
out.hidden = q("#curve").style.visibility; out.pressed = q(".toggle").getAttribute("aria-pressed");
q(".toggle").dispatchEvent(new MouseEvent("click", { bubbles: true })); out.shown = q("#curve").style.visibility;
const pre = document.createElement("pre"); pre.id = "out"; pre.textContent = JSON.stringify(out); document.body.appendChild(pre);
</script></body>`
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	page := strings.Replace(written(t, d, (*Document).Page), "</body>", use, 1)
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	dom, err := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+filepath.Join(dir, "profile"), "--virtual-time-budget=10000", "--dump-dom", "file://"+file).Output()
	m := regexp.MustCompile(`<pre id="out">(.*?)</pre>`).FindSubmatch(dom)
	if err != nil || m == nil {
		t.Fatalf("no result: %v", err)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(html.UnescapeString(string(m[1]))), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"ascending": "c", "descending": "a", "sort": "descending", "filtered": "b, the second",
		"csv": "Name,Time (s)\na,1\n\"b, the second\",0.002\nc,0.0003\n", "tip": "1 s", "focus": "one", "next": "two", "escaped": "true",
		"hidden": "hidden", "pressed": "false", "shown": ""} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}
