package doc

import (
	"strings"
	"testing"
)

func TestJoinWords(t *testing.T) {
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a and b": {"a", "b"}, "a, b and c": {"a", "b", "c"}} {
		if got := JoinWords(words); got != want {
			t.Errorf("JoinWords(%q) = %q, want %q", words, got, want)
		}
	}
}

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 changes", 1: "1 change", 2000: "2,000 changes"} {
		if got := Plural(n, "change"); got != want {
			t.Errorf("Plural(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestFirstLetter(t *testing.T) {
	for _, test := range []struct{ text, upper, lower string }{
		{"", "", ""}, {"a", "A", "a"}, {"full sync", "Full sync", "full sync"}, {"Full sync", "Full sync", "full sync"},
		{"TCP broken", "TCP broken", "TCP broken"}, {"Émile", "Émile", "émile"}, {"émile", "Émile", "émile"}, {"× floor", "× floor", "× floor"},
	} {
		if got := UpperFirst(test.text); got != test.upper {
			t.Errorf("UpperFirst(%q) = %q, want %q", test.text, got, test.upper)
		}
		if got := LowerFirst(test.text); got != test.lower {
			t.Errorf("LowerFirst(%q) = %q, want %q", test.text, got, test.lower)
		}
	}
}

// TestUnparted: ~ stands for a non-breaking space.
func TestUnparted(t *testing.T) {
	for text, want := range map[string]string{"3.31 s": "3.31~s", "1 ms ± 4 %": "1~ms ±~4~%", "≤ 1 s": "≤~1~s", "16 MiB *": "16~MiB~*", "1 Service is enough": "1 Service is enough"} {
		if got := strings.ReplaceAll(Unparted(text), "\u00a0", "~"); got != want {
			t.Errorf("Unparted(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, test := range []struct {
		text  string
		width int
		want  string
	}{{"abcdef", 6, "abcdef"}, {"abcdefg", 6, "ab…efg"}, {"µµµµµ", 5, "µµµµµ"}, {"µµµµµ", 4, "µ…µµ"}} {
		if got := Shorten(test.text, test.width); got != test.want {
			t.Errorf("Shorten(%q, %d) = %q, want %q", test.text, test.width, got, test.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, test := range []struct {
		text string
		want string
	}{
		{"", ""}, {"one two", "one two"}, {"one two three", "one two\n  three"}, {"µµµ µµµ µ", "µµµ µµµ µ"},
		{"one two three four", "one two\n  three\n  four"}, {"unbreakable one", "unbreakable\n  one"}, {" one \n two ", "one two"},
	} {
		if got := Wrap(test.text, 9, "  "); got != test.want {
			t.Errorf("Wrap(%q) = %q, want %q", test.text, got, test.want)
		}
	}
}
