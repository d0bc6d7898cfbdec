package capacity

import (
	"fmt"
	"time"

	"synclab/bench/subject"
	"synclab/proxier"
	"synclab/proxier/backend"
	"synclab/proxier/iptables"
	"synclab/reports/model"
)

// mode is a size at which a subject works in another way. Costs on one side say little about the other side.
type mode struct {
	of    func(subject.Spec) bool
	above float64               // the mode begins above this size
	size  func(Cluster) float64 // size of a cluster
	unit  string                // of the size, in words
	what  string                // what begins there, after the subject's name
}

func total(c Cluster) float64 { return float64(c.Services) * c.Endpoints }

// modes are facts of the proxiers' sources: kube-proxy 1.29 to 1.37, pkg/proxy/iptables and pkg/proxy/nftables. That a
// hash table grows, and that a full sync of synclab/nftables takes several transactions, are no modes: at the sizes of
// a calibration, both have happened many times, and the fit contains them.
var modes = []mode{
	{
		of:    func(s subject.Spec) bool { return s.Backend == proxier.Iptables },
		above: backend.LargeCluster, size: total, unit: "endpoints in all",
		what: "the rules of endpoints have no comments, and there is no hourly full sync (large cluster)",
	},
	{
		of:    func(s subject.Spec) bool { return s.Proxier == subject.Synclab && s.Backend == proxier.Nftables },
		above: backend.LargeCluster, size: total, unit: "endpoints in all",
		what: "there is no hourly full sync (large cluster)",
	},
	{
		of:    func(s subject.Spec) bool { return s.Proxier == subject.KubeProxy && s.Backend == proxier.Nftables },
		above: 1, size: func(c Cluster) float64 { return c.Endpoints }, unit: "endpoint of each Service",
		what: "each Service port has a map without a name, whose number makes full syncs superlinear",
	},
}

// hourly reports whether a subject writes all rules again every hour. Above LargeCluster endpoints, synclab and the
// iptables modes of kube-proxy do not. kube-proxy's mode nftables does, whatever the size.
func hourly(name string, c Cluster) bool {
	if about, err := subject.Parse(name); err == nil && about.Proxier == subject.KubeProxy && about.Backend == proxier.Nftables {
		return true
	}
	return total(c) <= backend.LargeCluster
}

// lockWait is how long kube-proxy's check of its canary chain waits for the xtables lock (-w 5), every syncPeriod. It takes
// a check that fails for a flush, and writes all rules again (pkg/util/iptables, Monitor; 1.29 to 1.37).
const lockWait = 5 * time.Second

// canary remarks on clusters in which a sync may hold the xtables lock for longer than lockWait. The simulator has no
// such full syncs.
func (a *asker) canary(about subject.Spec, asked []Cluster) error {
	if about.Proxier != subject.KubeProxy || about.Variant != iptables.Legacy {
		return nil
	}
	for _, c := range asked {
		e, err := a.predict(c, queryPartial(1))
		if err != nil {
			return err
		}
		if e.Median > lockWait.Seconds() {
			a.remark("in a cluster of %s, a partial sync takes %s, and holds the xtables lock for most of that. kube-proxy's check of its canary chain waits for %v only, "+
				"takes a held lock for a flush, and has all rules written again, which takes much longer: latencies there are higher than predicted",
				c.size(model.Measured), amount(Start, e.Median, e.Basis), lockWait)
			return nil
		}
	}
	return nil
}

// sides counts the clusters on each side of a mode.
func (m mode) sides(clusters []Cluster) (below, above int) {
	for _, c := range clusters {
		if m.size(c) > m.above {
			above++
		} else {
			below++
		}
	}
	return below, above
}

// changes remarks on the modes that change between the clusters of an answer, or that its calibration has not seen.
func (a *asker) changes(asked []Cluster) error {
	about, err := subject.Parse(a.subject.Name)
	if err != nil {
		return nil // the sync loop of an unknown program is unknown
	}
	var measured []Cluster
	for _, p := range a.subject.Shown(model.Total, model.Full) {
		measured = append(measured, Cluster{Services: p.Services, Endpoints: p.Endpoints})
	}
	for _, m := range modes {
		if !m.of(about) {
			continue
		}
		at := fmt.Sprintf("above %s %s, %s", digits(m.above, model.Measured), m.unit, m.what)
		below, above := m.sides(asked)
		seenBelow, seenAbove := m.sides(measured)
		switch {
		case above > 0 && seenAbove == 0, below > 0 && seenBelow == 0:
			a.remark("%s; the calibration has no cluster on the answer's side of that", at)
		case below > 0 && above > 0:
			a.remark("%s; the clusters of this answer are on both sides", at)
		}
	}
	return a.canary(about, asked)
}
