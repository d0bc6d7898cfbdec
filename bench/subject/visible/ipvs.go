package visible

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/moby/ipvs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// IPVS has a virtual server for each address of a Service port, and a real server for each endpoint. kube-proxy's
// mode ipvs sets the weight of an endpoint's real server to 0 when the endpoint is removed, and deletes the real server when
// its last connection has ended. So real servers of weight 0 do not count.
//
// Only the cluster IP is read. kube-proxy writes the other addresses of a port in the same sync. Where no endpoint is
// local, a traffic policy Local means nothing (k/k#97081).
//
// IPVS has no generation and sends no events. Pending ports are read at every poll. For Quiet there is a fingerprint of
// all servers, which is read for at most a twentieth of the time.
type ipvsReader struct {
	handle *ipvs.Handle
	text   *os.File // all servers, as the kernel prints them
	seed   maphash.Seed
	*frontends

	generation uint64
	read       time.Time // of the fingerprint
	cost       time.Duration
}

// serversFile lists the virtual and real servers of a namespace. Without IPVS it does not exist.
const serversFile = "/proc/thread-self/net/ip_vs"

// ErrNoIPVS means that the kernel has no IPVS. Other errors wrap it.
var ErrNoIPVS = errors.New("this kernel has no IPVS: load its module (modprobe ip_vs)")

// HasIPVS returns ErrNoIPVS if the kernel has no IPVS.
func HasIPVS() error {
	if _, err := os.Stat(serversFile); err != nil {
		return fmt.Errorf("%w: %w", ErrNoIPVS, err)
	}
	return nil
}

func newIPVS() (*ipvsReader, error) {
	text, err := os.Open(serversFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoIPVS, err)
	}
	logrus.SetLevel(logrus.ErrorLevel) // package ipvs warns if it cannot load a module that is there already
	handle, err := ipvs.New("")
	if err != nil {
		text.Close()
		return nil, fmt.Errorf("IPVS: %w", err)
	}
	return &ipvsReader{handle: handle, text: text, seed: maphash.MakeSeed(), frontends: newFrontends()}, nil
}

func (r *ipvsReader) Close() {
	r.handle.Close()
	r.text.Close()
}

func (r *ipvsReader) Misses() bool { return true }

// Blind: no number announces a commit.
func (r *ipvsReader) Blind() time.Duration { return 0 }

func (r *ipvsReader) Generation() (Generation, error) {
	now := time.Now()
	if now.Sub(r.read) > blindFactor*r.cost {
		var err error
		if r.generation, err = r.fingerprint(); err != nil {
			return Generation{}, err
		}
		r.read = time.Now()
		r.cost = r.read.Sub(now)
	}
	return Generation{Dispatch: r.generation}, nil
}

// fingerprint is a hash of all servers without their numbers of connections, the last two fields of a line.
func (r *ipvsReader) fingerprint() (uint64, error) {
	text, err := io.ReadAll(io.NewSectionReader(r.text, 0, 1<<40))
	if err != nil {
		return 0, fmt.Errorf("IPVS: %w", err)
	}
	var hash maphash.Hash
	hash.SetSeed(r.seed)
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) > 2 && string(fields[0]) == "->" {
			fields = fields[:len(fields)-2]
		}
		for _, field := range fields {
			_, _ = hash.Write(field)
			_ = hash.WriteByte(' ')
		}
	}
	return hash.Sum64(), nil
}

func (r *ipvsReader) Look() (Snapshot, error) {
	return clusterIPs{reader: r, frontends: r.frontends, endpoints: r.endpoints, elsewhere: true}, nil
}

// Installed counts virtual servers as rules and real servers as elements.
func (r *ipvsReader) Installed(family corev1.IPFamily) (Installed, error) {
	virtual, real := 0, 0
	err := eachServer(family, func(handle *ipvs.Handle, service *ipvs.Service) error {
		servers, err := handle.GetDestinations(service)
		virtual, real = virtual+1, real+len(servers)
		return err
	})
	return Installed{Rules: map[string]int{"ipvs": virtual}, Elements: real}, err
}

// VirtualServers names the virtual servers of a family in the calling thread's namespace.
func VirtualServers(family corev1.IPFamily) (names []string, err error) {
	err = eachServer(family, func(_ *ipvs.Handle, service *ipvs.Service) error {
		names = append(names, fmt.Sprintf("%d %s:%d", service.Protocol, service.Address, service.Port))
		return nil
	})
	return names, err
}

// eachServer calls yield with the virtual servers of a family in the calling thread's namespace.
func eachServer(family corev1.IPFamily, yield func(*ipvs.Handle, *ipvs.Service) error) error {
	handle, err := ipvs.New("")
	if err != nil {
		return fmt.Errorf("IPVS: %w", err)
	}
	defer handle.Close()
	services, err := handle.GetServices()
	if err != nil {
		return fmt.Errorf("IPVS: list virtual servers: %w", err)
	}
	for _, service := range services {
		if service.AddressFamily != addressFamily(family) {
			continue
		}
		if err := yield(handle, service); err != nil {
			return fmt.Errorf("IPVS: list real servers: %w", err)
		}
	}
	return nil
}

func addressFamily(family corev1.IPFamily) uint16 {
	if family == corev1.IPv6Protocol {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// endpoints returns the real servers that get new flows to a place.
func (r *ipvsReader) endpoints(p place) ([]string, error) {
	real, err := r.handle.GetDestinations(&ipvs.Service{
		AddressFamily: addressFamily(p.family), Protocol: protocolNumber(p.protocol),
		Address: net.IP(p.addr.Addr().AsSlice()), Port: p.addr.Port(),
	})
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("IPVS: real servers of %s: %w", p.addr, err)
	}
	var texts []string
	for _, server := range real {
		if addr, ok := netip.AddrFromSlice(server.Address); ok && server.Weight > 0 {
			texts = append(texts, netip.AddrPortFrom(addr.Unmap(), server.Port).String())
		}
	}
	return texts, nil
}

func protocolNumber(protocol corev1.Protocol) uint16 {
	switch protocol {
	case corev1.ProtocolUDP:
		return unix.IPPROTO_UDP
	case corev1.ProtocolSCTP:
		return unix.IPPROTO_SCTP
	}
	return unix.IPPROTO_TCP
}
