package socketlb

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Balancer is what is attached to a cgroup.
type Balancer struct {
	spec  *ebpf.CollectionSpec
	group string
	links map[string]link.Link // by the program's name
}

// New returns a balancer for a cgroup, given the object file of the programs. Nothing is attached yet.
func New(object, group string) (*Balancer, error) {
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", object, err)
	}
	for _, one := range spec.Maps {
		one.Pinning = ebpf.PinNone
	}
	return &Balancer{spec: spec, group: group, links: map[string]link.Link{}}, configure(spec)
}

// ErrNoMaps means that the process does not have all of the control plane's maps, perhaps not yet. Other errors wrap it.
var ErrNoMaps = errors.New("no maps of Cilium's load balancer")

// shared reports whether the control plane makes a map: all others belong to the programs. It fills maps of health and
// of active flows only with settings that are off by default.
func shared(name string) bool {
	return (strings.HasPrefix(name, "cilium_lb") || strings.HasPrefix(name, "cilium_skip_lb")) &&
		!strings.HasSuffix(name, "_health") && !strings.HasSuffix(name, "_act")
}

// Attach attaches the programs over the maps of a process, in place of those attached before.
func (b *Balancer) Attach(pid int) error {
	theirs, err := Maps(pid)
	if err != nil {
		return err
	}
	defer closeMaps(theirs) // the programs keep those that they use
	spec, replaced := b.spec.Copy(), map[string]*ebpf.Map{}
	for name, own := range spec.Maps {
		if !shared(name) {
			continue
		}
		i := slices.IndexFunc(theirs, func(m Map) bool { return m.Type() == own.Type && m.Is(name, own.KeySize, own.ValueSize) })
		if i < 0 {
			return fmt.Errorf("%w: %s is missing", ErrNoMaps, name)
		}
		own.MaxEntries, own.Flags = theirs[i].MaxEntries(), theirs[i].Flags()
		replaced[name] = theirs[i].Map
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replaced})
	if err != nil {
		return fmt.Errorf("load Cilium's programs: %w", err)
	}
	defer collection.Close()
	for _, name := range slices.Sorted(maps.Keys(collection.Programs)) {
		program := collection.Programs[name]
		if before := b.links[name]; before != nil {
			err = before.Update(program)
		} else {
			var one link.Link
			if one, err = link.AttachCgroup(link.CgroupOptions{Path: b.group, Attach: spec.Programs[name].AttachType, Program: program}); err == nil {
				b.links[name] = one
			}
		}
		if err != nil {
			return fmt.Errorf("attach %s to cgroup %s: %w", name, b.group, err)
		}
	}
	return nil
}

// configure sets what Cilium's agent sets by default.
func configure(spec *ebpf.CollectionSpec) error {
	const firstNodePort, lastNodePort = 30000, 32767
	for name, value := range map[string]any{
		"enable_no_service_endpoints_routable": uint8(1), "nodeport_port_min": uint16(firstNodePort), "nodeport_port_max": uint16(lastNodePort),
	} {
		variable := spec.Variables["__config_"+name]
		if variable == nil {
			return fmt.Errorf("no setting %s in Cilium's programs", name)
		}
		if err := variable.Set(value); err != nil {
			return fmt.Errorf("setting %s of Cilium's programs: %w", name, err)
		}
	}
	return nil
}

// Close detaches all.
func (b *Balancer) Close() (err error) {
	for name, one := range b.links {
		err = errors.Join(err, one.Close())
		delete(b.links, name)
	}
	return err
}
