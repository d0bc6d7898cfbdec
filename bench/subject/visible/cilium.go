package visible

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/subject/socketlb"
)

// Cilium keeps Services in BPF maps. In the map of services, a frontend has an entry with the number of its active
// backends, and further entries, numbered from 1, with the backends' IDs. The map of backends has their addresses. Cilium
// writes the new backends first, then the number.
//
// Only the cluster IP is read, as with IPVS. Maps have no generation and send no events: pending ports are read at every
// poll. For Quiet there is a fingerprint of the services, which is read for at most a twentieth of the time.
//
// The maps are not pinned: they belong to the process. They are found among the open files of the processes in this PID
// namespace, so that maps of other agents on the machine are neither read nor mistaken for these.
type ciliumReader struct {
	*frontends
	families []corev1.IPFamily
	seed     maphash.Seed
	owner    ciliumMaps

	generation uint64
	read       time.Time // of the fingerprint
	cost       time.Duration
}

// ciliumMaps are the maps of a process; pid is 0 if no process has any.
type ciliumMaps struct {
	pid      int
	byFamily map[corev1.IPFamily]*ciliumFamily
}

type ciliumFamily struct{ services, backends *ebpf.Map }

// ErrNoBPF means that this user or kernel has no BPF maps. Other errors wrap it.
var ErrNoBPF = errors.New("no BPF maps here: run as root, on a kernel with BPF")

// HasBPF returns ErrNoBPF if this process cannot make BPF maps, or not read those of others.
func HasBPF() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: %w", ErrNoBPF, unix.EPERM) // the library's own text blames a limit of memory
	} else if err != nil {
		return fmt.Errorf("%w: %w", ErrNoBPF, err)
	}
	defer m.Close()
	about, err := m.Info()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoBPF, err)
	}
	id, known := about.ID()
	if !known {
		return fmt.Errorf("%w: its maps have no IDs", ErrNoBPF)
	}
	again, err := ebpf.NewMapFromID(id)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoBPF, err)
	}
	return again.Close()
}

func newCilium(families []corev1.IPFamily) (*ciliumReader, error) {
	if err := HasBPF(); err != nil {
		return nil, err
	}
	return &ciliumReader{frontends: newFrontends(), families: families, seed: maphash.MakeSeed()}, nil
}

func (r *ciliumReader) Close() { r.owner.close() }

func (r *ciliumReader) Misses() bool { return true }

// Blind: no number announces a commit.
func (r *ciliumReader) Blind() time.Duration { return 0 }

// Generation also finds the maps of a new process. The maps of a process that has exited only exist because they are
// open here.
func (r *ciliumReader) Generation() (Generation, error) {
	if r.owner.pid != 0 && unix.Kill(r.owner.pid, 0) != nil {
		r.owner.close()
		r.owner, r.read = ciliumMaps{}, time.Time{}
	}
	now := time.Now()
	if now.Sub(r.read) > blindFactor*r.cost {
		var err error
		if r.owner.pid == 0 {
			if r.owner, err = findCilium(r.families); err != nil {
				return Generation{}, err
			}
		}
		r.generation = 0
		for _, family := range r.owner.byFamily {
			sum, _, err := family.fingerprint(r.seed)
			if err != nil {
				return Generation{}, err
			}
			r.generation += sum
		}
		r.read = time.Now()
		r.cost = r.read.Sub(now)
	}
	return Generation{Dispatch: r.generation}, nil
}

func (r *ciliumReader) Look() (Snapshot, error) {
	return clusterIPs{reader: r, frontends: r.frontends, endpoints: r.endpoints}, nil
}

// Installed counts frontends as rules, and their backends as elements.
func (r *ciliumReader) Installed(family corev1.IPFamily) (Installed, error) {
	owner, err := findCilium([]corev1.IPFamily{family})
	if err != nil || owner.pid == 0 {
		return Installed{Rules: map[string]int{ciliumTable: 0}}, err
	}
	defer owner.close()
	_, in, err := owner.byFamily[family].fingerprint(r.seed)
	return in, err
}

// ciliumTable names Cilium's frontends among the numbers of installed rules.
const ciliumTable = "bpf"

// Sizes of the entries of a family, and offsets in them. Addresses and ports of packets are in network byte order, all
// other numbers in the machine's. A key of services has address, port, number of the backend, protocol and scope. A value
// has the backend's ID, or for number 0 the count of active backends. A backend has address and port.
type ciliumSizes struct{ addr, serviceKey, backendValue int }

const (
	ciliumServiceValue = 12
	ciliumCountAt      = 4
	ciliumBatch        = 4096
)

func ciliumSizesOf(family corev1.IPFamily) ciliumSizes {
	if family == corev1.IPv6Protocol {
		return ciliumSizes{16, 24, 24}
	}
	return ciliumSizes{4, 12, 12}
}

// endpoints returns the backends that get new flows to a place.
func (r *ciliumReader) endpoints(p place) ([]string, error) {
	family := r.owner.byFamily[p.family]
	if family == nil {
		return nil, nil
	}
	sizes := ciliumSizesOf(p.family)
	key := make([]byte, sizes.serviceKey)
	copy(key, p.addr.Addr().AsSlice())
	binary.BigEndian.PutUint16(key[sizes.addr:], p.addr.Port())
	number := key[sizes.addr+2:]
	key[sizes.addr+4] = byte(protocolNumber(p.protocol))
	first, err := family.services.LookupBytes(key)
	if err != nil || first == nil {
		return nil, ciliumError(p, err)
	}
	var texts []string
	for n := range binary.NativeEndian.Uint16(first[ciliumCountAt:]) {
		binary.NativeEndian.PutUint16(number, n+1)
		service, err := family.services.LookupBytes(key)
		if err != nil {
			return nil, ciliumError(p, err)
		}
		if service == nil {
			continue // Cilium is writing it
		}
		backend, err := family.backends.LookupBytes(service[:4])
		if err != nil {
			return nil, ciliumError(p, err)
		}
		if backend == nil {
			continue
		}
		addr, _ := netip.AddrFromSlice(backend[:sizes.addr])
		texts = append(texts, netip.AddrPortFrom(addr, binary.BigEndian.Uint16(backend[sizes.addr:])).String())
	}
	return texts, nil
}

func ciliumError(p place, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("BPF maps of Cilium: %s: %w", p.addr, err)
}

// ciliumKey is a key of services.
type ciliumKey[A [4]byte | [16]byte] struct {
	Addr            A
	Port            [2]byte
	Number          uint16
	Protocol, Scope uint8
	Pad             [2]byte
}

type ciliumEntry[A [4]byte | [16]byte] struct {
	key   ciliumKey[A]
	value [ciliumServiceValue]byte
}

// fingerprint is a sum of hashes of all entries of services, and counts them.
func (f *ciliumFamily) fingerprint(seed maphash.Seed) (sum uint64, in Installed, err error) {
	if f.services.KeySize() == uint32(ciliumSizesOf(corev1.IPv6Protocol).serviceKey) {
		return fingerprint[[16]byte](f.services, seed)
	}
	return fingerprint[[4]byte](f.services, seed)
}

func fingerprint[A [4]byte | [16]byte](services *ebpf.Map, seed maphash.Seed) (sum uint64, in Installed, err error) {
	keys, values := make([]ciliumKey[A], ciliumBatch), make([][ciliumServiceValue]byte, ciliumBatch)
	var cursor ebpf.MapBatchCursor
	all, frontends := 0, 0
	for err == nil {
		var n int
		n, err = services.BatchLookup(&cursor, keys, values, nil)
		for i, key := range keys[:n] {
			sum += maphash.Comparable(seed, ciliumEntry[A]{key, values[i]})
			if key.Number == 0 {
				frontends++
			}
		}
		all += n
	}
	if !errors.Is(err, ebpf.ErrKeyNotExist) { // the end of the map
		return 0, in, fmt.Errorf("BPF map of Cilium's services: %w", err)
	}
	return sum, Installed{Rules: map[string]int{ciliumTable: frontends}, Elements: all - frontends}, nil
}

func (m *ciliumMaps) close() {
	for _, family := range m.byFamily {
		for _, one := range []*ebpf.Map{family.services, family.backends} {
			if one != nil {
				_ = one.Close()
			}
		}
	}
}

// findCilium opens the maps of the process in this PID namespace that has all of them. The pid is 0 if none has.
func findCilium(families []corev1.IPFamily) (ciliumMaps, error) {
	dirs, err := filepath.Glob("/proc/[1-9]*")
	if err != nil {
		return ciliumMaps{}, err
	}
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if pid == os.Getpid() {
			continue // this process has maps of others open
		}
		found := ciliumMaps{pid: pid, byFamily: map[corev1.IPFamily]*ciliumFamily{}}
		for _, family := range families {
			found.byFamily[family] = &ciliumFamily{}
		}
		if err := found.open(pid); err != nil || found.complete() {
			return found, err
		}
		found.close()
	}
	return ciliumMaps{}, nil
}

// open takes the maps of a process.
func (m *ciliumMaps) open(pid int) error {
	maps, err := socketlb.Maps(pid)
	for _, opened := range maps {
		if !m.take(opened) {
			_ = opened.Close()
		}
	}
	return err
}

// take keeps a map if it is one of the wanted.
func (m *ciliumMaps) take(opened socketlb.Map) bool {
	for family, maps := range m.byFamily {
		sizes, prefix := ciliumSizesOf(family), "cilium_lb4_"
		if family == corev1.IPv6Protocol {
			prefix = "cilium_lb6_"
		}
		for _, want := range []struct {
			name       string
			key, value int
			place      **ebpf.Map
		}{
			{prefix + "services_v2", sizes.serviceKey, ciliumServiceValue, &maps.services},
			{prefix + "backends_v3", 4, sizes.backendValue, &maps.backends},
		} {
			if *want.place == nil && opened.Is(want.name, uint32(want.key), uint32(want.value)) {
				*want.place = opened.Map
				return true
			}
		}
	}
	return false
}

func (m *ciliumMaps) complete() bool {
	for _, family := range m.byFamily {
		if family.services == nil || family.backends == nil {
			return false
		}
	}
	return true
}
