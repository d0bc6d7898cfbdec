package doc

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// What a hostile name would be in Markdown must be text.
func TestMark(t *testing.T) {
	for _, c := range []struct {
		text   string
		begins bool
		want   string
	}{
		{"synclab/nftables at 1,000 Services × 10: full_sync 1.31× (1.22–1.40)", true, "synclab/nftables at 1,000 Services × 10: full_sync 1.31× (1.22–1.40)"},
		{"x kube-proxy@v1.34.4/nftables y", false, "x `kube-proxy@v1.34.4/nftables` y"},
		{"a\n# heading\r\n- list", false, "a # heading - list"},
		{"# heading", true, `\# heading`}, {"- list", true, `\- list`}, {"12. list", true, `12\. list`}, {"> quote", true, `\> quote`}, {"=====", true, `\=====`}, {"| a |", true, `\| a |`},
		{"![x](http://e/x.png)", false, "!\\[x](`http://e/x.png`)"}, {"![x](y)", false, `!\[x](y)`}, {"[x](y)", false, `\[x](y)`},
		{"</details><img src=x>", false, "&lt;/details>&lt;img src=x>"}, {"&lt;b&gt; &#64;", false, "&amp;lt;b&amp;gt; &amp;#<!-- -->64;"}, {"a & b", false, "a & b"},
		{"@user, (@user) a@b `@user", false, "@<!-- -->user, (@<!-- -->user) `a@b` \\`@<!-- -->user"}, {"#12 and x#12 (k/k#34).", false, "#<!-- -->12 and `x#12` (`k/k#34`)."},
		{"see GH-1 o/r@0123abc 0123abcd www.x.example a@x.example, :tada: at 12:30:45 or 1:2", false, "see `GH-1` `o/r@0123abc` `0123abcd` `www.x.example` `a@x.example`, `:tada:` at `12:30:45` or 1:2"},
		{"`code` **bold** _it_ a_b ~~x~~ $x$ \\", false, "\\`code\\` \\*\\*bold\\*\\* \\_it\\_ a_b \\~\\~x\\~\\~ \\$x\\$ \\\\"},
		{"run " + Span("a `b` | c") + " ends", false, "run ``a `b` | c`` ends"}, {Span("`a`"), false, "`` `a` ``"}, {spanBegin + "no end @x", false, "`no end @x`"},
	} {
		if got := mark(c.text, c.begins); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestVisible(t *testing.T) {
	if got := Visible("a\u202eb\x1b[31m\u200b\ufeff\u2066\u0085\tc\nd é 中"); got != "a�b�[31m����\tc\nd é 中" {
		t.Errorf("%q", got)
	}
}

// dangers are what no text may become in Markdown, outside of code.
var dangers = regexp.MustCompile("(?m)^#|^```|^ {0,3}>|^\\s*[-+*] .*\\n^ {4,}|(^|[^\\\\])!?\\[[^\\]]*\\]\\(|<[^!]|(^|[^\\pL\\pN_])@[\\pL\\pN]|#[\\pN]")

// FuzzMarkdown: whatever the texts are, the document has as many lines and table columns as with plain texts, and none of
// them has a meaning.
func FuzzMarkdown(f *testing.F) {
	for _, text := range []string{"a", "a|b\\|c", "\n# x", "`", "``` x", "</details>", "@x", "![a](b)", "<!-- ", "\\", spanBegin + "|", "a\r\n\r\n    code", "- - -", "&lt;"} {
		f.Add(text)
	}
	lines := func(text string) []string {
		table := &Table{Title: "t", Columns: []Column{{Name: "a"}, {Name: "b"}}}
		table.Add(Text(text), Text("1"))
		d := &Document{Title: "x" + text, Subtitle: text, Sections: []Section{{Title: "s", Blocks: []Block{
			{Verdict: []Line{{Level: Good, Text: text}}}, {Note: text}, {Table: table}, {Facts: [][2]string{{text, text}}, List: []string{text}}}}}}
		var b strings.Builder
		if err := d.Markdown(&b); err != nil {
			panic(err)
		}
		return strings.Split(b.String(), "\n")
	}
	unescaped := regexp.MustCompile(`(\\.|[^|\\])*`) // all but the pipes that divide cells
	f.Fuzz(func(t *testing.T, text string) {
		if strings.TrimSpace(text) == "" || len(text) > 200 {
			return
		}
		want, got := lines("plain"), lines(text)
		if len(want) != len(got) {
			t.Fatalf("%q: %d lines, want %d:\n%s", text, len(got), len(want), strings.Join(got, "\n"))
		}
		for i := range got {
			if strings.HasPrefix(want[i], "|") {
				if a, b := unescaped.ReplaceAllString(want[i], ""), unescaped.ReplaceAllString(got[i], ""); a != b {
					t.Errorf("%q: %s cells in %q", text, b, got[i])
				}
			}
			line := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(got[i], "## "), "### "), "- ")
			if strings.Contains(text, spanBegin) || linked.MatchString(text) || linked.MatchString("x"+text) {
				continue // code may have anything
			}
			if at := dangers.FindString(line); at != "" {
				t.Errorf("%q: %q in %q", text, at, got[i])
			}
		}
	})
}

func ExampleSpan() {
	fmt.Println(mark("run "+Span("synclab run `x`"), false))
	// Output: run `` synclab run `x` ``
}
