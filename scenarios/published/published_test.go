package published

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"synclab/bench/subject"
	"synclab/scenarios"
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
			if e.Step != "" && !slices.ContainsFunc(scenario.Steps, func(s scenarios.Step) bool { return s.Kind() == e.Step }) {
				t.Errorf("%s: %s: %s has no step %s", c.Name, e.Say, c.Scenario, e.Step)
			}
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

// Each setting changes the scenario, and a changed fault is the one that the claim is about: the numbers of steps move when a
// scenario gets another step.
func TestSettings(t *testing.T) {
	claims, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range claims {
		whole, err := scenarios.Load(c.Scenario, c.Set, scenarios.Sizes{})
		if err != nil {
			t.Fatal(err)
		}
		for i, set := range c.Set {
			without, err := scenarios.Load(c.Scenario, slices.Delete(slices.Clone(c.Set), i, i+1), scenarios.Sizes{})
			if err == nil && reflect.DeepEqual(whole, without) {
				t.Errorf("%s: %s changes nothing of %s", c.Name, set, c.Scenario)
			}
		}
		fields := slices.Clone(c.Set)
		for _, axis := range c.Sweep {
			fields = append(fields, axis.Field)
		}
		for _, field := range fields {
			parts := strings.Split(field, ".")
			if len(parts) < 3 || parts[0] != "steps" || parts[2] != "fault" {
				continue
			}
			number, err := strconv.Atoi(parts[1])
			if err != nil {
				t.Errorf("%s: %s: %v", c.Name, field, err)
				continue
			}
			steps := whole.Steps
			if number >= len(steps) {
				t.Errorf("%s: %s: there are %d steps", c.Name, field, len(steps))
				continue
			}
			fault := steps[number].Fault
			if fault == nil || !slices.ContainsFunc(c.Expect, func(e Expectation) bool { return e.Detail == fault.Kind }) {
				t.Errorf("%s: %s is of %+v, and no expectation is about that", c.Name, field, fault)
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
