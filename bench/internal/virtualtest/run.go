package virtualtest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"synclab/sim"
)

// Run runs the proxier of a seed for length, in virtual time, which package testing provides.
func Run(t *testing.T, seed uint64, length time.Duration) (Report, error) {
	s := SettingOf(seed)
	script, err := newScript(s, length)
	if err != nil {
		return Report{}, fmt.Errorf("seed %d: %w", seed, err)
	}
	first, err := script.source.first()
	if err != nil {
		return Report{}, fmt.Errorf("seed %d: %w", seed, err)
	}
	return bubble(t, s, first, script.next)
}

// bubble runs a script in a new synctest bubble.
func bubble(t *testing.T, s Setting, first *sim.Objects, actions player) (report Report, err error) {
	synctest.Test(t, func(*testing.T) {
		report, err = play(context.Background(), s, first, actions)
	})
	return report, err
}

// ActionsOf returns the initial objects and at most most Actions of a seed's script.
func ActionsOf(seed uint64, length time.Duration, most int) (*sim.Objects, []Action, error) {
	script, err := newScript(SettingOf(seed), length)
	if err != nil {
		return nil, nil, err
	}
	first, err := script.source.first()
	if err != nil {
		return nil, nil, err
	}
	var all []Action
	for len(all) < most {
		a, ok, err := script.next()
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			break
		}
		all = append(all, a)
	}
	return first, all, nil
}

// Replay runs a list of Actions.
func Replay(t *testing.T, s Setting, first *sim.Objects, all []Action) (Report, error) {
	i := 0
	return bubble(t, s, first, func() (Action, bool, error) {
		if i == len(all) {
			return Action{}, false, nil
		}
		i++
		return all[i-1], true, nil
	})
}
