package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
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

// failing are the events of a package whose only test fails, packageFails those of one that ends otherwise.
const (
	packageFails = `{"Action":"fail","Package":"m/a"}
`
	failing = `{"Action":"fail","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Output":"FAIL\n"}
` + packageFails
)

func TestReader(t *testing.T) {
	list := filepath.Join(t.TempDir(), "skips")
	for _, c := range []struct {
		name, events, skips string
		later, ok           bool
		says                string
	}{
		{"without a list", events, "", false, true, ""},
		{"allowed", events, "a TestSkipped needs what no CI has # and a comment\n", false, true, ""},
		{"allowed by a pattern", events, "a TestSkipped/o* reason\n", false, true, ""},
		{"another test is allowed", events, "a TestSkip reason\n", false, false, "skip that is not allowed: m/a TestSkipped/one: no nft here\n"},
		{"another package is allowed", events, "b TestSkipped reason\n", false, false, "not allowed"},
		{"allowed until later", events, "a TestSkipped later: needs nft\n", true, true, ""},
		{"it is later", events, "a TestSkipped later: needs nft\n", false, false, "skip that is not allowed: m/a TestSkipped/one: no nft here\n"},
		{"nothing ran", "", "", false, false, ""},
		{"alone it passes", failing + events, "", false, true, "failed beside other tests, and passed alone: m/a TestGood\n"},
		{"it fails twice", failing + failing, "", false, false, "0 passed, 1 failed, 0 skipped\n"},
		{"it fails, and is skipped alone", failing + strings.ReplaceAll(failing, `"fail"`, `"skip"`), "", false, false, "0 passed, 1 failed, 0 skipped\n"},
		{"it fails before its tests", packageFails + events, "", false, false, "package that failed before its tests or beside them: m/a\n"},
		{"it ends in the middle of them", strings.Replace(failing, `"FAIL\n"`, `"fatal error"`, 1) + events, "", false, false, "package that failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			r := &reader{out: &out}
			if c.skips != "" {
				if err := os.WriteFile(list, []byte(c.skips), 0o644); err != nil {
					t.Fatal(err)
				}
				var err error
				if r.skips, err = readSkips(list, c.later); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.read(strings.NewReader(c.events)); err != nil {
				t.Fatal(err)
			}
			if ok := r.close(); ok != c.ok {
				t.Errorf("ok %v, want %v", ok, c.ok)
			}
			if !strings.Contains(out.String(), c.says) || c.says == "" && strings.Count(out.String(), "\n") > 1 {
				t.Errorf("output:\n%s\nwant %q", &out, c.says)
			}
		})
	}
}

// What one run skipped is exactly what the next one repeats, and a test that does not run again is a failure.
func TestLaterRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "later")
	r := &reader{out: io.Discard}
	if err := errors.Join(r.read(strings.NewReader(events)), writeTests(file, r.later)); err != nil {
		t.Fatal(err)
	}
	tests, err := readTests(file)
	if want := map[string][]string{"m/a": {"TestSkipped/one"}}; err != nil || !reflect.DeepEqual(tests, want) {
		t.Fatalf("%v, %v; want %v", tests, err, want)
	}
	for _, c := range []struct {
		events string
		ok     bool
	}{{events, true}, {strings.ReplaceAll(events, "/one", "/two"), false}} {
		var out bytes.Buffer
		again := &reader{out: &out}
		again.expect(tests)
		if err := again.read(strings.NewReader(c.events)); err != nil {
			t.Fatal(err)
		}
		if ok := again.close(); ok != c.ok || strings.Contains(out.String(), "did not run: m/a TestSkipped/one\n") == c.ok {
			t.Errorf("ok %t, want %t:\n%s", ok, c.ok, &out)
		}
	}
}

// The pattern is for -run: alternatives, whose levels have separate expressions.
func TestPattern(t *testing.T) {
	got := pattern([]string{"TestA", "TestB/x.y/mode=(z)"})
	if want := `^TestA$|^TestB$/^x\.y$/^mode=\(z\)$`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Arguments after the list belong to go test, flags too.
func TestSplit(t *testing.T) {
	for _, c := range []struct {
		args string
		want options
		rest string
	}{
		{"-count=1 ./...", options{}, "-count=1 ./..."}, {"-skips f -race -count=1 ./x", options{skips: "f"}, "-race -count=1 ./x"}, {"./...", options{}, "./..."},
		{"-only g -skips f -v", options{skips: "f", only: "g"}, "-v"}, {"-later g ./x", options{later: "g"}, "./x"},
	} {
		if o, rest := split(strings.Fields(c.args)); o != c.want || strings.Join(rest, " ") != c.rest {
			t.Errorf("%s: %+v, rest %q", c.args, o, rest)
		}
	}
}

// A list without reasons is refused.
func TestReadSkips(t *testing.T) {
	list := filepath.Join(t.TempDir(), "skips")
	if err := os.WriteFile(list, []byte("# why\n\na TestOne\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readSkips(list, false); err == nil || !strings.Contains(err.Error(), ":3:") {
		t.Errorf("error %v", err)
	}
}
