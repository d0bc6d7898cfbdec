package walk

// memory is one thing that a ruleset keeps of a client: an entry of an xt_recent list, or an element that a rule put
// into a set of nf_tables, or took out. What one way of a packet has left is a list from the last to the first, so that
// ways that part share what came before.
type memory struct {
	list     int32 // list of xt_recent, or set of nf_tables
	key      string
	value    string
	gone     bool // taken out
	previous int32
}

// nothing remembered.
const nothing int32 = -1

// remember adds an entry, or renews it.
func (w *Walker) remember(s *state, m memory) {
	m.previous = s.remembered
	w.memory = append(w.memory, m)
	s.remembered = int32(len(w.memory) - 1)
}

// recall finds the newest entry of a list for a key; nil: there is none.
func (w *Walker) recall(s *state, list int32, key string) *memory {
	for i := s.remembered; i != nothing; i = w.memory[i].previous {
		if m := &w.memory[i]; m.list == list && m.key == key {
			return m
		}
	}
	return nil
}
