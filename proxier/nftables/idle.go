package nftables

// Bounds of the chains of classes that are not used any more.
const (
	mostIdle   = 2048 // chains made after the table was loaded, before it is looked for idle ones among them
	mostRetire = 256  // chains that one sync takes away: an ordinary user's transaction is short
)

// idleClasses knows which shared classes are used by how many frontends. Those that were made with the table stay; so
// many come of a cluster's Services. Later ones may become any number: of policy Local there is one for each pair of
// endpoints and endpoints of the node that a Service ever had.
type idleClasses struct {
	uses map[Class]int32
	late []Class // made since the table was loaded, oldest first
	// quit have become idle in the sync at hand: packets may have been told of them.
	quit map[Class]bool
	// look when there are more late ones than that: most, and those that were found in use the last time.
	look, most int
}

func newIdleClasses() idleClasses {
	c := idleClasses{uses: map[Class]int32{}, quit: map[Class]bool{}}
	c.bound(mostIdle)
	return c
}

func (c *idleClasses) bound(most int) { c.look, c.most = most, most }

// use counts a frontend that uses a class, or that does not any more.
func (c *idleClasses) use(class Class, by int32) {
	if c.uses[class] += by; c.uses[class] == 0 {
		delete(c.uses, class)
		c.quit[class] = true
	}
}

// retire gives the classes whose chains are to go with the sync at hand, once there are many.
func (c *idleClasses) retire() (idle []Class) {
	defer clear(c.quit)
	if len(c.late) <= c.look {
		return nil
	}
	kept := c.late[:0]
	for _, class := range c.late {
		if c.uses[class] > 0 || c.quit[class] || len(idle) == mostRetire {
			kept = append(kept, class)
		} else {
			idle = append(idle, class)
		}
	}
	c.late = kept
	if c.look = c.most; len(idle) < mostRetire {
		c.look += len(kept) // all that are left are in use
	}
	return idle
}
