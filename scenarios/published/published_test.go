package published

import (
	"strings"
	"testing"

	"synclab/bench/subject"
)

// Every claim names a scenario, subjects and expectations that exist.
func TestClaims(t *testing.T) {
	claims, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(claims) == 0 {
		t.Fatal("no claims")
	}
	for _, c := range claims {
		scenario, err := c.MakeScenario()
		if err != nil {
			t.Error(err)
			continue
		}
		cells, err := scenario.Cells()
		if err != nil {
			t.Error(err)
		}
		for _, name := range c.Subjects {
			if _, err := subject.Parse(name); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
		for _, e := range c.Expect {
			for _, p := range []*Place{e.Of, e.Over} {
				if p == nil {
					continue
				}
				there := p.Subject == ""
				for _, name := range c.Subjects {
					there = there || name == p.Subject
				}
				size := p.Services == 0
				for _, cell := range cells {
					size = size || cell.Scenario.Shape.Services == p.Services
				}
				if !there || !size {
					t.Errorf("%s: %s: nothing is measured at %+v", c.Name, e.Say, *p)
				}
			}
		}
	}
}

func TestParse(t *testing.T) {
	const head = "title: t\nsource: s\ndate: d\npublished: p\ncompared: c\nscenario: cold-start\nsubjects: [synclab/nftables]\nminutes: 1\n"
	for text, want := range map[string]string{
		head + "expect: [{say: x, figure: cold_start, of: {}, to: 2}]": "",
		head:                 "wants subjects, minutes and expect",
		head + "colour: red": "colour not found",
		strings.Replace(head, "title: t\n", "", 1):                                                                  "title is missing",
		head + "expect: [{say: x, figure: cold_start, of: {}}]":                                                     "",
		head + "expect: [{say: x, figure: cold_start, of: {}, published: 3}]":                                       "wants from or to",
		head + "expect: [{say: x, of: {}, to: 2}]":                                                                  "a figure or a function",
		head + "expect: [{say: x, function: f, kind: full, of: {}, to: 2}]":                                         "needs profile",
		head + "expect: [{say: x, figure: cold_start, growth: true, of: {}, to: 2}]":                                "needs over",
		head + "profile: true\nexpect: [{say: x, function: f, kind: full, of: {}, to: 2}]\nmaxTime: 10m\nreps: 4\n": "",
	} {
		_, err := parse("a.yaml", []byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
