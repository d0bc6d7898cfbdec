package shrink

import (
	"errors"
	"slices"
	"testing"
)

// TestDrop: the items that the failure needs remain, all others go, in a number of tries that grows with the logarithm.
func TestDrop(t *testing.T) {
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
			list, tries := upTo(1000), 0
			err := Drop(func() []int { return list }, func(gone []int) (bool, error) {
				tries++
				rest := slices.DeleteFunc(slices.Clone(list), func(i int) bool { return slices.Contains(gone, i) })
				if !test.fails(rest) {
					return false, nil
				}
				list = rest
				return true, nil
			})
			if err != nil || !slices.Equal(list, test.want) {
				t.Errorf("%v, left %v", err, list)
			}
			if most := 100; len(test.want) < 10 && tries > most {
				t.Errorf("%d tries, want at most %d", tries, most)
			}
		})
	}
}

func TestDropEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	tries := 0
	err := Drop(func() []int { return upTo(10) }, func([]int) (bool, error) { tries++; return false, broken })
	if !errors.Is(err, broken) || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

func upTo(n int) []int {
	var out []int
	for i := range n {
		out = append(out, i)
	}
	return out
}
