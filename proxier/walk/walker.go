package walk

// Rules is a compiled ruleset of one family. It does not change.
type Rules struct {
	chains []chain
	bases  [hooks][]int // base chains by hook, by priority
}

type chain struct{ name string }

// Walker walks packets through rules. It reuses its memory: one goroutine at a time.
type Walker struct {
	rules *Rules
	world World
}

// New makes a walker.
func New(rules *Rules, world World) *Walker { return &Walker{rules: rules, world: world} }
