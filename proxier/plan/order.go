package plan

// Compare is the order of Service ports: the oldest first, and by name where they are of one age.
func Compare(a, b *ServicePort) int { return compare(a, b) }
