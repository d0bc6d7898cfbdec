package bench

import (
	"errors"
	"strings"

	"synclab/bench/lab/profile"
	"synclab/bench/outfile"
	"synclab/bench/raw"
)

// checkProfile returns an error if profiles are wanted and cannot be taken.
func (o *ExecuteOptions) checkProfile() error {
	if !o.Profile {
		return nil
	}
	if o.hasGuests() {
		return errors.New("--profile needs the machine's own kernel: outside of a User-mode Linux kernel perf sees one process, and inside there is no perf event that it could use; leave --kernel out")
	}
	if o.Feed == raw.FeedInformers {
		return errors.New("--profile needs --feed " + raw.FeedAPI + ": with informers the subject is part of the lab's own process")
	}
	o.Feed = raw.FeedAPI
	for _, step := range o.Scenario.Steps {
		if step.Migrate != nil {
			return errors.New("--profile is not for scenarios with step migrate, which have two subjects in one repetition")
		}
	}
	return profile.Check()
}

// fileName turns the name of a subject into a part of a file's name.
func fileName(subject string) string {
	return outfile.Name(strings.Map(func(c rune) rune {
		if c == '.' || c == '-' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' {
			return c
		}
		return '-'
	}, subject))
}
