package walk

// memory is one item of client state: an entry of an xt_recent list, or an element that a rule added to a set of
// nf_tables or deleted from it. A path's items are a list from the last to the first, so that paths that branch share
// the items before the branch.
type memory struct {
	list     int32 // list of xt_recent, or set of nf_tables
	key      string
	value    string
	gone     bool // deleted
	previous int32
}

// nothing is the index of no item.
const nothing int32 = -1

// remember adds an entry, or renews it.
func (w *Walker) remember(s *state, m memory) {
	m.previous = s.remembered
	w.memory = append(w.memory, m)
	s.remembered = int32(len(w.memory) - 1)
}

// recall returns the newest entry of a list for a key; nil: there is none.
func (w *Walker) recall(s *state, list int32, key string) *memory {
	for i := s.remembered; i != nothing; i = w.memory[i].previous {
		if m := &w.memory[i]; m.list == list && m.key == key {
			return m
		}
	}
	return nil
}
