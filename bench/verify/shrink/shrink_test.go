package shrink

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// items is a pass over the numbers of a list.
var items = Parts(func(list []int) []int { return list }, func(list, gone []int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(i int) bool { return slices.Contains(gone, i) })
})

// TestMinimize: the items that the failure needs remain, all others go, in a number of tries that grows with the logarithm.
func TestMinimize(t *testing.T) {
	for _, test := range []struct {
		name  string
		fails func([]int) bool
		want  []int
	}{
		{"one", func(l []int) bool { return slices.Contains(l, 700) }, []int{700}},
		{"first and last", func(l []int) bool { return slices.Contains(l, 0) && slices.Contains(l, 999) }, []int{0, 999}},
		{"none needed", func([]int) bool { return true }, nil},
		{"all needed", func(l []int) bool { return len(l) == 1000 }, upTo(1000)},
		// 0 can only go after 999, which takes a second round of single items.
		{"in order", func(l []int) bool {
			return slices.Contains(l, 3) && slices.Contains(l, 998) && (slices.Contains(l, 0) || !slices.Contains(l, 999))
		}, []int{3, 998}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tries := 0
			search := Search[[]int]{Passes: []Pass[[]int]{items}, Fails: func(_ context.Context, l []int) (bool, error) {
				tries++
				return test.fails(l), nil
			}}
			left, err := search.Minimize(t.Context(), upTo(1000))
			if err != nil || !slices.Equal(left, test.want) {
				t.Errorf("%v, left %v", err, left)
			}
			if most := 100; len(test.want) < 10 && tries > most {
				t.Errorf("%d tries, want at most %d", tries, most)
			}
		})
	}
}

// A later pass may let parts of an earlier one go. A part may be an edit, which has no effect on some inputs.
func TestPassesAreRepeated(t *testing.T) {
	type input struct {
		List []int
		Wide bool
	}
	tried := map[int]int{}
	search := Search[input]{
		Passes: []Pass[input]{
			Parts(func(in input) []int { return in.List }, func(in input, gone []int) input {
				_, without := items(in.List)
				from := slices.Index(in.List, gone[0])
				return input{without(from, from+len(gone)), in.Wide}
			}),
			Parts(func(input) []func(*input) {
				return []func(*input){func(in *input) { in.Wide = false }, func(*input) {}}
			}, func(in input, edits []func(*input)) input {
				for _, edit := range edits {
					edit(&in)
				}
				return in
			}),
		},
		Fails: func(_ context.Context, in input) (bool, error) {
			tried[len(in.List)]++
			return slices.Contains(in.List, 5) && (!in.Wide || len(in.List) > 3), nil
		},
	}
	left, err := search.Minimize(t.Context(), input{upTo(10), true})
	if err != nil || left.Wide || !slices.Equal(left.List, []int{5}) {
		t.Errorf("%v, left %v", err, left)
	}
	if tried[10] > 0 {
		t.Errorf("the input itself was tried again: %v", tried)
	}
}

func TestFirst(t *testing.T) {
	var tried []int
	search := Search[int]{Fails: func(_ context.Context, i int) (bool, error) {
		tried = append(tried, i)
		return i%2 == 0, nil
	}}
	if got, found, err := search.First(t.Context(), 1, 3, 1, 4, 6); got != 4 || !found || err != nil {
		t.Errorf("%v, %v, %v", got, found, err)
	}
	if got, found, err := search.First(t.Context(), 4, 5); found || err != nil {
		t.Errorf("%v, %v, %v", got, found, err)
	}
	if want := []int{1, 3, 4, 5}; !slices.Equal(tried, want) {
		t.Errorf("tried %v, want %v", tried, want)
	}
}

// A search ends with its tries and with the deadline of its context, without an error. What it found until then counts.
func TestBudget(t *testing.T) {
	tries := 0
	search := Search[[]int]{Passes: []Pass[[]int]{items}, Tries: 2, Fails: func(_ context.Context, l []int) (bool, error) {
		tries++
		return len(l) > 10, nil
	}}
	if left, err := search.Minimize(t.Context(), upTo(100)); err != nil || tries != 2 || len(left) != 50 {
		t.Errorf("%v, %d items left after %d tries; want 50 after 2", err, len(left), tries)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		search := Search[[]int]{Passes: []Pass[[]int]{items}, Fails: func(ctx context.Context, l []int) (bool, error) {
			select {
			case <-time.After(time.Minute):
				return len(l) > 10, nil
			case <-ctx.Done():
				return true, errors.New("cut short")
			}
		}}
		began := time.Now()
		left, err := search.Minimize(ctx, upTo(100))
		if took := time.Since(began); err != nil || len(left) != 50 || took != 150*time.Second {
			t.Errorf("%v, %d items left after %v; want 50 after 2m30s", err, len(left), took)
		}
	})
}

func TestErrorsEndASearch(t *testing.T) {
	broken := errors.New("broken")
	tries := 0
	search := Search[[]int]{Passes: []Pass[[]int]{items}, Fails: func(context.Context, []int) (bool, error) { tries++; return false, broken }}
	if left, err := search.Minimize(t.Context(), upTo(10)); !errors.Is(err, broken) || tries != 1 || len(left) != 10 {
		t.Errorf("%v after %d tries, left %v", err, tries, left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := search.Minimize(ctx, upTo(10)); !errors.Is(err, context.Canceled) || tries != 1 {
		t.Errorf("interrupted: %v after %d tries", err, tries)
	}
}

func upTo(n int) []int {
	var out []int
	for i := range n {
		out = append(out, i)
	}
	return out
}
