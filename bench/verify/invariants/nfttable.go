package invariants

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel"
	"synclab/proxier/nftables"
)

// NftTable is the content of Synclab's table of nf_tables: the elements as bytes, and the number of rules of each
// chain. The doc of package proxier/nftables describes the bytes.
type NftTable struct {
	Name string
	// Beside are the proxier's tables that packets do not traverse.
	Beside []string
	Sets   map[string]map[string]string // set, key: value, or the name of the chain that a verdict jumps to
	Rules  map[string]int               // by chain
}

// entrySets are the sets that packets look up first. They must have exactly the elements that a full sync writes.
var entrySets = []string{"frontends", "nodeports", "refused", "refused-nodeports", "refusals-input", "refusals-forward", "refusals-output", "health-checks", "members"}

// The sets that packets look up with the result of another set. They may still have deferred deletes of the previous
// sync.
const (
	listsSet   = "lists"
	hairpinSet = "hairpin"
	classesSet = "classes"
)

// endpointSets are the maps of endpoints, by the length of their list; the first one is that of short lists.
var endpointSets = nftables.EndpointMaps()

var readSets = slices.Concat([]string{listsSet, hairpinSet, classesSet}, endpointSets, entrySets)

// nftTables are the possible names of Synclab's table.
var nftTables = [...]string{"synclab", "synclab-2"}

// ReadNft reads the table that packets traverse, in this thread's namespace. Without such a table, Name is empty.
func ReadNft(family corev1.IPFamily) (*NftTable, error) {
	reader, err := nftables.OpenReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	t := &NftTable{Sets: map[string]map[string]string{}, Rules: map[string]int{}}
	if t.Name, err = reader.Table(family); err != nil {
		return t, err
	}
	k, err := kernel.OpenNftables()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	for _, name := range nftTables {
		_, there, err := k.Table(family, name)
		if err != nil {
			return nil, err
		}
		if there && name != t.Name {
			t.Beside = append(t.Beside, name)
		}
	}
	if t.Name == "" {
		return t, nil
	}
	for _, set := range readSets {
		elements, err := k.Elements(family, t.Name, set)
		if err != nil {
			return nil, err
		}
		t.Sets[set] = map[string]string{}
		for _, e := range elements {
			value := string(e.Data)
			if set == classesSet || strings.HasPrefix(set, "refusals-") {
				value = e.Jump
			}
			t.Sets[set][string(e.Key)] = value
		}
	}
	t.Rules, err = k.RulesByChain(family, t.Name)
	return t, err
}

// nftOfModel converts a model of the table.
func nftOfModel(m *nftables.Model) *NftTable {
	t := &NftTable{Name: m.Name, Sets: map[string]map[string]string{}, Rules: map[string]int{}}
	for name, chain := range m.Chains {
		t.Rules[name] = len(chain.Rules)
	}
	for _, name := range readSets {
		t.Sets[name] = map[string]string{}
		if m.Sets[name] == nil {
			continue
		}
		for key, e := range m.Sets[name].Elements {
			value := string(e.Value)
			if m.Sets[name].Verdicts {
				value = e.Verdict.Chain
			}
			t.Sets[name][key] = value
		}
	}
	return t
}

// The encoding of classes, IDs and slots of endpoints.
const (
	wordLen     = 4 // also the length of the blank word before a value
	idLen       = 8
	variantMask = 0xf // of a class that several frontends share: depends on which came first
	kindShift   = 61
	kindOwn     = 7 // of a class with a single frontend: the rest is a hash
	localSlots  = 1 << 30
)

// class returns the class that a value refers to.
func class(value string) uint64 {
	if len(value) < wordLen+idLen {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(value[wordLen:]))
}

// bare clears the bits of a class that depend on the order of events.
func bare(class uint64) uint64 {
	if class>>kindShift == kindOwn {
		return class
	}
	return class &^ variantMask
}

// inMap stands between the name of a list and that of its map.
const inMap = " in map "

// slots returns the endpoints of each Service port by ID, list and map; each list maps slot numbers to endpoints.
func (t *NftTable) slots() map[string]map[uint32]string {
	found := map[string]map[uint32]string{}
	for _, set := range endpointSets {
		for key, target := range t.Sets[set] {
			if len(key) != idLen+wordLen {
				continue
			}
			slot, list := binary.NativeEndian.Uint32([]byte(key[idLen:])), key[:idLen]+"all"+inMap+set
			if slot >= localSlots {
				slot, list = slot-localSlots, key[:idLen]+"local"+inMap+set
			}
			if found[list] == nil {
				found[list] = map[uint32]string{}
			}
			found[list][slot] = target
		}
	}
	return found
}

// spell formats a key as hex.
func spell(key string) string { return fmt.Sprintf("%x", key) }

// classKey encodes a class as part of a key.
func classKey(class uint64) string { return string(binary.BigEndian.AppendUint64(nil, class)) }
