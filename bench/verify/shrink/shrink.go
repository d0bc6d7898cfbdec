// Package shrink makes a failing input smaller by leaving parts of it out.
//
//  1. A Pass lists parts that an input may do without: objects, steps, or edits that simplify it.
//  2. The search leaves out half of the parts, then a quarter, and so on down to single parts. It keeps what still fails.
//  3. The passes are repeated until none of them finds a smaller input, or until the budget is used up.
package shrink

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
)

// Search is a search for a smaller input. No input is tried twice; inputs are the same if their JSON is.
type Search[T any] struct {
	// Fails reports whether an input fails. The search ends with its first error.
	Fails  func(context.Context, T) (bool, error)
	Passes []Pass[T]
	// Tries is the most calls of Fails; 0: no bound.
	Tries int

	tries int
	known map[[sha256.Size]byte]bool // digests of inputs
}

// Pass returns the number of parts that may go, and a function that leaves out those from one index to another.
type Pass[T any] func(input T) (parts int, without func(from, to int) T)

// Parts makes a pass of a list of parts.
func Parts[T, P any](list func(T) []P, without func(T, []P) T) Pass[T] {
	return func(input T) (int, func(from, to int) T) {
		parts := list(input)
		return len(parts), func(from, to int) T { return without(input, parts[from:to]) }
	}
}

// errTries ends a search that has used up its tries.
var errTries = errors.New("no tries are left")

// First returns the first of some inputs that fails; false if none fails.
func (s *Search[T]) First(ctx context.Context, inputs ...T) (T, bool, error) {
	for _, input := range inputs {
		if failed, err := s.try(ctx, input); err != nil || failed {
			return input, failed, inBudget(ctx, err)
		}
	}
	var none T
	return none, false, nil
}

// Minimize returns the smallest failing input that it finds, also with an error. The first input must fail.
// The deadline of ctx is a budget, and no error.
func (s *Search[T]) Minimize(ctx context.Context, input T) (T, error) {
	if _, err := s.isKnown(input); err != nil {
		return input, err
	}
	for again := true; again; {
		again = false
		for _, pass := range s.Passes {
			smaller, found, err := s.drop(ctx, input, pass)
			input, again = smaller, again || found
			if err != nil {
				return input, inBudget(ctx, err)
			}
		}
	}
	return input, nil
}

// inBudget drops the error of a search that has used up its tries or its time.
func inBudget(ctx context.Context, err error) error {
	if errors.Is(err, errTries) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return err
}

// drop leaves out parts of a pass, until no single one can go.
func (s *Search[T]) drop(ctx context.Context, input T, pass Pass[T]) (smallest T, found bool, err error) {
	parts, without := pass(input)
	for size := (parts + 1) / 2; size > 0; size /= 2 {
		for again := true; again; {
			again = false
			for from := 0; from < parts; {
				smaller := without(from, min(from+size, parts))
				failed, err := s.try(ctx, smaller)
				if err != nil {
					return input, found, err
				}
				if !failed {
					from += size
					continue
				}
				input, found = smaller, true
				parts, without = pass(input)
				again = size == 1 // others may be able to go now
			}
		}
	}
	return input, found, nil
}

// try reports whether an input fails that was not tried before.
func (s *Search[T]) try(ctx context.Context, input T) (bool, error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if known, err := s.isKnown(input); known || err != nil {
		return false, err
	}
	if s.Tries > 0 && s.tries == s.Tries {
		return false, errTries
	}
	s.tries++
	failed, err := s.Fails(ctx, input)
	if ctx.Err() != nil {
		return false, context.Cause(ctx) // a call that was cut short has no result
	}
	return failed, err
}

// isKnown reports whether the search has seen an input before, and remembers it.
func (s *Search[T]) isKnown(input T) (bool, error) {
	text, err := json.Marshal(input)
	if err != nil {
		return false, err
	}
	digest := sha256.Sum256(text)
	if s.known == nil {
		s.known = map[[sha256.Size]byte]bool{}
	}
	known := s.known[digest]
	s.known[digest] = true
	return known, nil
}
