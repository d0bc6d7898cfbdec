package yamldoc

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestSplit(t *testing.T) {
	text := "%YAML 1.2\n---\na: 1\n---\n# nothing\n\n--- {b: 2}\n...\nc: |\n  ---x\n---d: 3\n---"
	var got []string
	for above, part := range Split([]byte(text), Mark) {
		got = append(got, fmt.Sprintf("%d %s", above, strings.TrimSpace(string(part))))
	}
	if want := []string{"1 a: 1", "6 {b: 2}", "7 c: |\n  ---x\n---d: 3"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for range Split([]byte(text), Mark) {
		break // and no further call of the loop's body
	}
}

func TestKindRow(t *testing.T) {
	row := KindRow("Config")
	for text, want := range map[string]bool{
		"kind: Config": true, "x: 1\nkind: \"Config\"\n": true, `{"kind":"Config"}`: true, "  kind: Config": true,
		"# kind: Config": false, "kind: ConfigMap": false, "echo kind: Config": false,
	} {
		if row.MatchString(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestTree(t *testing.T) {
	tree := Parse([]byte("a: &x\n  b: 1\n  b: 2\nc:\n- d: 3\n- *x\n<<: *x\nb: 4\nb: 5\nd.e:\n  f[0].g: 6\n  h: 7\nd: {e: {i: 8}}\n"))
	for path, want := range map[string]string{
		"": "1 true", "a": "1 true", "a.b": "3 true", "b": "9 true", "c[0].d": "5 true", "c[1].b": "3 true", "c[2]": "4 false", "a.z.y": "1 false", "z": "1 false",
		"d.e": "13 true", "d.e.f[0].g": "11 true", "d.e.h": "12 true", "d.e.i": "13 true", "d.e.j": "13 false", "[d.e][f[0].g]": "11 true", "d.": "13 true", "c.d": "4 false", "dx": "1 false",
	} {
		line, found := tree.Line(path)
		if got := fmt.Sprint(line, " ", found); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
	if got, want := fmt.Sprint(tree.Repeated(false)), "[{b a.b 3} {b b 9}]"; got != want {
		t.Errorf("repeated keys %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(tree.Repeated(true)), "[{b a.b 3} {b c[1].b 3} {b b 3} {b b 8} {b b 9}]"; got != want {
		t.Errorf("repeated keys, with merges %s, want %s", got, want)
	}
	tree = Parse([]byte("a: &x\n  b: 1\nc: &y\n  b: 2\nd:\n  <<: [*x, *y]\n  <<: {e: 3}\n  \"<<\": 4\n  e: 5"))
	if got, want := fmt.Sprint(tree.Repeated(true)), "[{b d.b 2} {e d.e 9}]"; got != want {
		t.Errorf("keys of several merges %s, want %s", got, want)
	}
	if line, found := Parse([]byte("{\n\t\"a\": 1}")).Line("a"); line != 2 || !found {
		t.Errorf("in JSON with a tab: %d, %v", line, found)
	}
	broken := Parse([]byte("a: ["))
	if broken != nil {
		t.Error("a text that is not YAML has a tree")
	}
	if line, found := broken.Line("a"); line != 0 || found || len(broken.Repeated(true)) > 0 {
		t.Errorf("in a text that is not YAML: %d, %v", line, found)
	}
}

func TestSyntax(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: [":       "2 did not find expected node content",
		"[a]: b":           "0 a key of a mapping is not text",
		"a: .nan":          "0 a value that JSON does not have",
		"a: 1\n{{ x }}\n:": "3 could not find expected ':'; a template must be rendered first, for example with 'helm template'",
		"a: 1\na: 2":       `2 key "a" already set in map`,
	} {
		_, err := yaml.YAMLToJSONStrict([]byte(text))
		if err == nil {
			t.Errorf("%q is valid", text)
			continue
		}
		line, reason := Syntax([]byte(text), err)
		if got := fmt.Sprint(line, " ", reason); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestStrictField(t *testing.T) {
	if problem, path := StrictField(errors.New(`unknown field "a.b"`)); problem != "unknown field" || path != "a.b" {
		t.Errorf("%q %q", problem, path)
	}
	if problem, path := StrictField(errors.New("other")); problem != "" || path != "" {
		t.Errorf("%q %q", problem, path)
	}
}

func TestMismatches(t *testing.T) {
	type part struct {
		Small int8    `json:"small"`
		Count *uint32 `json:"count"`
		Bytes []byte  `json:"bytes"`
		Any   any     `json:"any"`
	}
	type whole struct {
		part  `json:",inline"`
		Text  string          `json:"text"`
		Flags map[string]bool `json:"flags"`
		Parts []part          `json:"parts"`
		Rate  float32         `json:"rate"`
	}
	got := Mismatches([]byte(`{"small": 300, "count": -1, "bytes": "AA==", "any": [1], "text": 1, "flags": {"b": "no", "a": true, "c": 0},
		"parts": [{"small": null}, 7, {"small": 1.5, "count": true}], "rate": [], "other": 1}`), reflect.TypeFor[whole]())
	want := []Mismatch{
		{"small", "is 300: want a whole number, of at most 8 bits"},
		{"count", "is -1: want a whole number, 0 or more"},
		{"text", "is 1: want text, in quotes"},
		{"flags.b", `is the text "no": want true or false`},
		{"flags.c", "is 0: want true or false"},
		{"parts[1]", "is 7: want a mapping"},
		{"parts[2].small", "is 1.5: want a whole number"},
		{"parts[2].count", "is true: want a whole number, 0 or more"},
		{"rate", "is a list: want a number"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}
