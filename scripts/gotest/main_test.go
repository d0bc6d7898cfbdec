package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"--- PASS: TestGood (0.00s)\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestSkipped/one","Output":"    a_test.go:7: no nft here\n"}
{"Action":"output","Package":"m/a","Test":"TestSkipped/one","Output":"    --- SKIP: TestSkipped/one (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestSkipped/one"}
{"Action":"output","Package":"m/a","Output":"PASS\n"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t0.1s\n"}
{"Action":"pass","Package":"m/a"}
`

const bad = `{"Action":"output","Package":"m/b","Test":"TestBad","Output":"    b_test.go:3: why\n"}
{"Action":"output","Package":"m/b","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"m/b","Test":"TestBad"}
{"Action":"output","Package":"m/b","Output":"FAIL\tm/b\t0.1s\n"}
{"Action":"fail","Package":"m/b"}
`

func TestReader(t *testing.T) {
	list := filepath.Join(t.TempDir(), "skips")
	for _, c := range []struct {
		name, events, skips string
		ok                  bool
		says, saysNot       string
	}{
		{"without a list", events, "", true, "ok  \tm/a\t0.1s\n1 passed, 0 failed, 1 skipped\n", "RUN"},
		{"allowed", events, "a TestSkipped needs what no CI has # and a comment\n", true, "", "not allowed"},
		{"allowed by a pattern", events, "a TestSkipped/o* reason\n", true, "", "not allowed"},
		{"another test is allowed", events, "a TestSkip reason\n", false, "skip that is not allowed: m/a TestSkipped/one: no nft here\n", ""},
		{"another package is allowed", events, "b TestSkipped reason\n", false, "not allowed", ""},
		{"a failure", events + bad, "", false, "    b_test.go:3: why\n--- FAIL: TestBad (0.00s)\nFAIL\tm/b", "RUN"},
		{"the build fails", `{"Action":"build-output","ImportPath":"m/c","Output":"c.go:1: no\n"}` + "\n" + `{"Action":"fail","Package":"m/c"}`, "", false, "c.go:1: no", ""},
		{"nothing ran", "", "", false, "0 passed, 0 failed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			r := &reader{out: &out}
			if c.skips != "" {
				if err := os.WriteFile(list, []byte(c.skips), 0o644); err != nil {
					t.Fatal(err)
				}
				var err error
				if r.skips, err = readSkips(list); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.read(strings.NewReader(c.events)); err != nil {
				t.Fatal(err)
			}
			if ok := r.close(); ok != c.ok {
				t.Errorf("ok %v, want %v", ok, c.ok)
			}
			if !strings.Contains(out.String(), c.says) || c.saysNot != "" && strings.Contains(out.String(), c.saysNot) {
				t.Errorf("output:\n%s\nwant %q, and not %q", &out, c.says, c.saysNot)
			}
		})
	}
}

// Arguments after the list belong to go test, flags too.
func TestSplit(t *testing.T) {
	for _, c := range []struct{ args, list, rest string }{
		{"-count=1 ./...", "", "-count=1 ./..."}, {"-skips f -race -count=1 ./x", "f", "-race -count=1 ./x"}, {"./...", "", "./..."},
	} {
		if list, rest := split(strings.Fields(c.args)); list != c.list || strings.Join(rest, " ") != c.rest {
			t.Errorf("%s: list %q, rest %q", c.args, list, rest)
		}
	}
}

// A list without reasons is refused.
func TestReadSkips(t *testing.T) {
	list := filepath.Join(t.TempDir(), "skips")
	if err := os.WriteFile(list, []byte("# why\n\na TestOne\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readSkips(list); err == nil || !strings.Contains(err.Error(), ":3:") {
		t.Errorf("error %v", err)
	}
}
