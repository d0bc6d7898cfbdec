package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"synclab/bench"
	"synclab/bench/raw"
	"synclab/scenarios"
)

// Execute returns the RunFunc that runs scenarios on the real kernel. It uses the options that do not depend on the
// scenario: tools, configuration, and how to start the program again. where is Options.Where.
func Execute(o bench.ExecuteOptions, where []string) RunFunc {
	return func(ctx context.Context, s *scenarios.Scenario, subject, dir string) (Outcome, error) {
		o := o
		o.Scenario, o.Subjects, o.Reps, o.Out, o.Feed = s, []string{subject}, 1, dir, raw.FeedAPI
		o.Command = replay(dir+".yaml", subject, where)
		limit := longest(s)
		limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run hung: it did not finish within %v", limit))
		defer cancel()
		made, err := bench.Execute(limited, o)
		switch {
		case ctx.Err() != nil:
			return Outcome{}, ctx.Err()
		case made == "": // nothing ran
			return Outcome{}, err
		case limited.Err() != nil:
			err = errors.Join(context.Cause(limited), err)
		}
		_, records, readErr := raw.ReadRun(made)
		if readErr != nil {
			return Outcome{}, readErr
		}
		return Judge(s, records, err), nil
	}
}

// longest returns a bound for the duration of a scenario that does not hang: its open loops and settle steps, plus time
// for Synclab itself.
func longest(s *scenarios.Scenario) time.Duration {
	limit := 5 * time.Minute
	for i, took := range s.Durations() {
		if settle := s.Steps[i].Settle; settle != nil {
			took = settle.Timeout
		}
		limit += took + 30*time.Second // time for a check, a start, a repair that a step waits for
	}
	return limit
}

// stepText formats a step as one line: "churn {rate: 2, events: 20}".
func stepText(step scenarios.Step) string {
	var node yaml.Node
	if err := node.Encode(step); err != nil || len(node.Content) != 2 {
		return step.Kind()
	}
	node.Content[1].Style = yaml.FlowStyle
	text, err := yaml.Marshal(node.Content[1])
	if err != nil {
		return step.Kind()
	}
	return strings.TrimSpace(node.Content[0].Value + " " + strings.TrimSuffix(strings.TrimSpace(string(text)), "{}"))
}
