package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"synclab/bench"
	"synclab/scenarios"
)

// Execute is the RunFunc that plays scenarios on the real kernel. Of the options it takes what scenarios have in common:
// tools, configuration, and how the program is started again.
func Execute(o bench.ExecuteOptions) RunFunc {
	return func(ctx context.Context, s *scenarios.Scenario, subject, dir string) (Outcome, error) {
		o := o
		o.Scenario, o.Subjects, o.Reps, o.Out, o.Feed = s, []string{subject}, 1, dir, bench.FeedAPI
		o.Command = replay(dir+".yaml", subject)
		limit := longest(s)
		limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it hung: not at its end after %v", limit))
		defer cancel()
		made, err := bench.Execute(limited, o)
		switch {
		case ctx.Err() != nil:
			return Outcome{}, ctx.Err()
		case made == "": // nothing was played
			return Outcome{}, err
		case limited.Err() != nil:
			err = errors.Join(context.Cause(limited), err)
		}
		_, records, readErr := bench.ReadRun(made)
		if readErr != nil {
			return Outcome{}, readErr
		}
		return Judge(s, records, err), nil
	}
}

// longest is a bound on how long a scenario takes that does not hang: all of its open loops and settle steps, and as much
// again as the lab needs for itself.
func longest(s *scenarios.Scenario) time.Duration {
	limit := 5 * time.Minute
	for i, took := range s.Durations() {
		if settle := s.Steps[i].Settle; settle != nil {
			took = settle.Timeout
		}
		limit += took + 30*time.Second // a check, a start, a repair that a step waits for
	}
	return limit
}

// stepText is a step in one line: "churn {rate: 2, events: 20}".
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
