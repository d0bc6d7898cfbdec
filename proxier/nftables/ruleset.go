package nftables

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"

	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Ruleset stores the desired and the installed content of one table, and writes the difference as transactions.
type Ruleset struct {
	rules   *rules
	entries map[tracker.ServicePortName]*entry
	ids     map[ID]*entry
	places  map[place]*placeState
	// chains of classes that are installed, with the number of their rules.
	chains map[Class]int
	idle   idleClasses
	// hashes are those of frontends' own chains.
	hashes map[Class][sha256.Size]byte
	// refusedAt are the external addresses in refused, by protocol and port. A NodePort may take precedence there.
	refusedAt map[place][]netip.Addr
	// hairpin counts the slots that contain an address that may be on this node.
	hairpin map[host]int32
	// dirty Service ports; nil: removed.
	dirty   map[tracker.ServicePortName]*plan.ServicePort
	refused map[tracker.ServicePortName]error
	// shortened are the Service ports with a shorter affinity timeout than before.
	shortened map[ID]bool

	// elements and fixedRules count the table's content, deferred deletes included.
	elements   [sets]int
	fixedRules int
	// left are the deferred deletes of the last sync. No packet that arrived since reaches them; the next sync deletes
	// them.
	left leftovers

	// The changes that the current sync collects.
	now     [sets]struct{ removed, added []byte }
	then    leftovers
	touched []place
	hosts   map[host]int32 // how hairpin counted an address before
	ahead   []chainRules
	rewrite []chainRules
	// loading: the table is new, so no element is replaced. unfilled Service ports have no slots yet.
	loading  bool
	bare     bool // a trial table, without chains that may soon be needed
	unfilled []tracker.ServicePortName
}

// entry is an installed Service port. An endpoint keeps its slot while their number stays, so a changed endpoint is one
// changed element.
type entry struct {
	id         ID
	port       *plan.ServicePort
	all, local []*tracker.Endpoint
}

// leftovers are deferred deletes: elements and chains that nothing new refers to.
type leftovers struct {
	removed [sets][]byte
	classes []Class // with their chains
}

// chainRules are the rules of a class's chain, to be written.
type chainRules struct {
	class Class
	rules ruleList
}

// NewRuleset returns the Ruleset of an empty table.
func NewRuleset(settings backend.Settings) *Ruleset {
	return &Ruleset{
		rules:     newRules(settings),
		entries:   map[tracker.ServicePortName]*entry{},
		ids:       map[ID]*entry{},
		places:    map[place]*placeState{},
		chains:    map[Class]int{},
		idle:      newIdleClasses(),
		hashes:    map[Class][sha256.Size]byte{},
		refusedAt: map[place][]netip.Addr{},
		hairpin:   map[host]int32{},
		dirty:     map[tracker.ServicePortName]*plan.ServicePort{},
		refused:   map[tracker.ServicePortName]error{},
		shortened: map[ID]bool{},
		hosts:     map[host]int32{},
	}
}

// Update records the changes of a plan.
func (r *Ruleset) Update(delta plan.Delta) {
	for _, name := range delta.Removed {
		r.dirty[name] = nil
		delete(r.refused, name)
	}
	for _, port := range delta.Changed {
		r.dirty[port.Name] = port
		delete(r.refused, port.Name)
	}
}

// Dirty reports whether there is anything to write.
func (r *Ruleset) Dirty() bool { return len(r.dirty) > 0 }

// Partial writes the difference in at most two transactions. See docs/design/nftables-table.md for why.
func (r *Ruleset) Partial(w writer) error {
	for _, name := range r.names() {
		r.change(name, r.dirty[name])
	}
	clear(r.dirty)
	r.settle()
	r.left.classes = append(r.left.classes, r.idle.retire()...)
	r.sweep(w)
	if len(r.ahead) > 0 {
		for i := range r.ahead {
			r.create(w, &r.ahead[i])
		}
		if err := w.commit(); err != nil {
			return err
		}
		r.ahead = r.ahead[:0]
	}
	r.write(w)
	for i := range r.rewrite {
		r.replace(w, &r.rewrite[i])
	}
	r.rewrite = r.rewrite[:0]
	r.left, r.then = r.then, leftovers{}
	return w.commit()
}

// names returns the names of the dirty Service ports, sorted.
func (r *Ruleset) names() []tracker.ServicePortName {
	names := make([]tracker.ServicePortName, 0, len(r.dirty))
	for name := range r.dirty {
		names = append(names, name)
	}
	slices.SortFunc(names, plan.CompareNames)
	return names
}

// changed returns the dirty Service ports that were not removed, sorted by name.
func (r *Ruleset) changed() (ports []*plan.ServicePort) {
	for _, name := range r.names() {
		if port := r.dirty[name]; port != nil {
			ports = append(ports, port)
		}
	}
	return ports
}

// Load fills a new table, which no packet reaches before Activate. The writer chooses the length of the transactions.
func (r *Ruleset) Load(w writer, ports []*plan.ServicePort) error {
	r.loading = true
	defer func() { r.loading = false }()
	r.reserve(ports)
	w.createTable()
	for s := range sets {
		w.createSet(s)
	}
	for _, chain := range fixedChains {
		w.createChain(chain, nil)
	}
	for _, h := range refusalHooks {
		h.verdicts(func(f refusal, to expr.Verdict) {
			w.addVerdict(h.set, native(uint32(f)), to)
			r.elements[h.set]++
		})
	}
	for _, chain := range fixedChains {
		r.writeFixed(w, chain)
	}
	for _, port := range ports {
		r.change(port.Name, port)
	}
	r.settle()
	if !r.bare {
		r.prepare()
	}
	// Chains come before elements. When a chain first uses a map, the kernel walks through the whole map, looking for
	// loops: some 100 ms with half a million endpoints.
	for i := range r.ahead {
		r.create(w, &r.ahead[i])
	}
	for _, name := range r.unfilled {
		if e := r.entries[name]; e != nil {
			r.fill(e, nil, e.port)
		}
		if r.collected() >= loadBytes {
			r.write(w)
		}
	}
	r.write(w)
	r.ahead, r.unfilled, r.then = nil, nil, leftovers{}
	clear(r.dirty)
	return w.commit()
}

// loadBytes of elements are collected before they are written to a new table: the kernel handles a row of elements of one
// set faster than single ones of several sets in turn.
const loadBytes = 24 << 10

// collected returns the length of the elements to be added.
func (r *Ruleset) collected() (n int) {
	for s := range sets {
		n += len(r.now[s].added)
	}
	return n
}

// reserve allocates the large maps at their final size: growing them would be half of all that a load allocates.
func (r *Ruleset) reserve(ports []*plan.ServicePort) {
	places := 0
	for _, port := range ports {
		places += 1 + len(port.ExternalIPs) + len(port.LoadBalancerVIPs)
	}
	r.entries = make(map[tracker.ServicePortName]*entry, len(ports))
	r.ids = make(map[ID]*entry, len(ports))
	r.places = make(map[place]*placeState, places)
	r.touched = make([]place, 0, places)
	r.unfilled = make([]tracker.ServicePortName, 0, len(ports))
}

// prepare creates chains that may soon be needed, while that is cheap.
func (r *Ruleset) prepare() {
	const usual = 32 // endpoints of a Service
	for n := 1; n <= usual; n++ {
		r.needClass(newClass(kindCluster, n, 0, 0))
	}
	for _, chain := range slices.Clone(r.ahead) {
		if !chain.class.own() && chain.class.variant() == 0 {
			chain.class.neighbours(r.needClass)
		}
	}
}

func (r *Ruleset) writeFixed(w writer, chain string) {
	for _, rule := range r.rules.fixed(chain) {
		w.rule(chain, rule)
		r.fixedRules++
	}
}

// Activate adds the base chains: packets meet the table from this transaction on. It takes no time for endpoints, and some
// for frontends: their rules are the first to use those maps, so the kernel walks through them.
func (r *Ruleset) Activate(w writer) error {
	for i := range baseChains {
		w.createChain(baseChains[i].name, &baseChains[i].hook)
		r.writeFixed(w, baseChains[i].name)
	}
	return w.commit()
}

// change brings a Service port from its installed to its desired state; nil: removed.
func (r *Ruleset) change(name tracker.ServicePortName, port *plan.ServicePort) {
	e := r.entries[name]
	if e == nil && port == nil {
		return
	}
	var id ID
	if e != nil {
		id = e.id
	} else {
		id = idOf(name)
	}
	proto, err := r.check(name, id, port)
	if err != nil {
		r.refused[name] = err
		return
	}
	if e == nil {
		e = &entry{id: id}
		r.entries[name], r.ids[e.id] = e, e
	}
	old := e.port
	if old != nil {
		eachClaim(old, proto, func(p place, _ role, _ int) {
			r.places[p].take(e)
			r.touch(p)
		})
	}
	if old != nil && port != nil && port.AffinitySeconds < old.AffinitySeconds {
		r.shortened[e.id] = true
	}
	if e.port = port; port == nil {
		delete(r.entries, name)
		delete(r.ids, e.id)
	} else {
		eachClaim(port, proto, func(p place, role role, rank int) {
			s := r.places[p]
			if s == nil {
				s = &placeState{}
				r.places[p] = s
			}
			s.put(claim{e, role, rank})
			r.touch(p)
		})
	}
	if r.loading {
		r.unfilled = append(r.unfilled, name)
		return
	}
	r.fill(e, old, port)
}

// check refuses a Service port that does not fit into keys or classes.
func (r *Ruleset) check(name tracker.ServicePortName, id ID, port *plan.ServicePort) (proto byte, err error) {
	if proto, err = protocolNumber(name.Protocol); err != nil || port == nil {
		return proto, err
	}
	if other := r.ids[id]; other != nil && other.port.Name != name {
		return proto, fmt.Errorf("its ID collides with that of %s", other.port.Name)
	}
	if n := max(len(port.Cluster), len(port.Local)); n > mostCount {
		return proto, fmt.Errorf("%d endpoints, more than %d", n, mostCount)
	}
	if n := len(port.Local); n > mostLocal {
		return proto, fmt.Errorf("%d endpoints on the node, more than %d", n, mostLocal)
	}
	if port.AffinitySeconds > mostTimeout {
		return proto, fmt.Errorf("affinity of %d s, longer than %d s", port.AffinitySeconds, mostTimeout)
	}
	return proto, r.checkClaims(id, port, proto)
}

// checkClaims refuses a Service port when too many others share one of its frontends.
func (r *Ruleset) checkClaims(id ID, port *plan.ServicePort, proto byte) (err error) {
	own := 1 + len(port.ExternalIPs) + len(port.LoadBalancerVIPs) // at most
	eachClaim(port, proto, func(p place, _ role, _ int) {
		s := r.places[p]
		if p.set != setFrontends && p.set != setNodePorts || s == nil || len(s.claims)+own <= mostClaims {
			return
		}
		others := 0
		for i := range s.claims {
			if s.claims[i].of.id != id {
				others++
			}
		}
		if others+own > mostClaims {
			err = fmt.Errorf("port %d at %s is shared %d times, the limit is %d", p.port, p.addr, others, mostClaims)
		}
	})
	return err
}

// create writes a chain that nothing refers to yet, and its element in classes.
func (r *Ruleset) create(w writer, c *chainRules) {
	name := c.class.Chain()
	w.createChain(name, nil)
	for _, rule := range c.rules {
		w.rule(name, rule)
	}
	w.addVerdict(setClasses, append64(nil, uint64(c.class)), expr.Verdict{Kind: expr.VerdictJump, Chain: name})
	r.elements[setClasses]++
	r.chains[c.class] = len(c.rules)
}

func (r *Ruleset) replace(w writer, c *chainRules) {
	name := c.class.Chain()
	w.flush(name)
	for _, rule := range c.rules {
		w.rule(name, rule)
	}
	r.chains[c.class] = len(c.rules)
}

// write passes the collected elements to the writer. A replaced element is removed first.
func (r *Ruleset) write(w writer) {
	for s := range sets {
		list := &r.now[s]
		r.remove(w, s, list.removed)
		if n := len(list.added); n > 0 {
			w.add(s, list.added)
			r.elements[s] += n / (s.keyLen(r.rules.Family) + s.valueLen(r.rules.Family))
		}
		list.removed, list.added = list.removed[:0], list.added[:0]
	}
}

func (r *Ruleset) remove(w writer, s set, keys []byte) {
	if len(keys) > 0 {
		w.remove(s, keys)
		r.elements[s] -= len(keys) / s.keyLen(r.rules.Family)
	}
}

// sweep deletes what the last sync deferred. No element and no rule refers to these chains any more.
func (r *Ruleset) sweep(w writer) {
	for s := range sets {
		r.remove(w, s, r.left.removed[s])
	}
	for _, class := range r.left.classes {
		r.remove(w, setClasses, append64(nil, uint64(class)))
		w.flush(class.Chain())
		w.deleteChain(class.Chain())
		delete(r.chains, class)
	}
	r.left = leftovers{}
}
