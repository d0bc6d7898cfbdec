package nftables

// Limits of the chains of classes that are not used any more.
const (
	mostIdle   = 2048 // chains created after the table was loaded, before idle ones among them are searched
	mostRetire = 256  // chains that one sync deletes: an ordinary user's transaction is short
)

// idleClasses counts how many frontends use each shared class. Classes that were created with the table stay: a
// cluster's Services have only so many. Later ones may become any number: with policy Local there is one for each pair
// of endpoints and endpoints of the node that a Service ever had.
type idleClasses struct {
	uses map[Class]int32
	late []Class // created since the table was loaded, oldest first
	// quit have become idle in the current sync: packets may have read them.
	quit map[Class]bool
	// look: search when there are more late classes than that: most, plus those that were in use at the last search.
	look, most int
}

func newIdleClasses() idleClasses {
	c := idleClasses{uses: map[Class]int32{}, quit: map[Class]bool{}}
	c.bound(mostIdle)
	return c
}

func (c *idleClasses) bound(most int) { c.look, c.most = most, most }

// use counts a frontend that uses a class, or that stops using it.
func (c *idleClasses) use(class Class, by int32) {
	if c.uses[class] += by; c.uses[class] == 0 {
		delete(c.uses, class)
		c.quit[class] = true
	}
}

// retire returns the classes whose chains the current sync deletes, once there are many.
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
