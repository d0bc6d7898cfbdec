// Package shrink makes a failing input smaller by leaving parts of it out.
package shrink

import "slices"

// Drop leaves out half of the items, then a quarter, and so on down to single items, until no single item can go.
//
// items returns the items that may go now. try leaves some of them out, and reports whether the rest still fails; if so,
// items no longer returns them. Drop ends with the first error of try.
func Drop[T any](items func() []T, try func(gone []T) (bool, error)) error {
	for size := (len(items()) + 1) / 2; size > 0; size /= 2 {
		for dropped := true; dropped; {
			dropped = false
			for from := 0; ; {
				all := items()
				if from >= len(all) {
					break
				}
				part := all[from:min(from+size, len(all))]
				fails, err := try(slices.Clone(part))
				if err != nil {
					return err
				}
				if !fails {
					from += size
					continue
				}
				dropped = size == 1 // others may be able to go now
			}
		}
	}
	return nil
}
