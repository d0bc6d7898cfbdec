package capacitytest

// Laws are the cost formulas of one subject: seconds, bytes and counts of s Services with n endpoints in all, c of the
// Services changed.
type Laws struct {
	// FullGo, FullUser and FullSys are the durations of a full sync in the proxier, in its tools and in the kernel.
	// Those of a partial sync are likewise.
	FullGo, FullUser, FullSys          func(s, n float64) float64
	PartialGo, PartialUser, PartialSys func(s, n, c float64) float64
	// RSS of the proxier and ChildRSS of its largest tool; nil: no tool.
	RSS, ChildRSS func(s, n float64) float64
	// Rules and Elements in the kernel.
	Rules, Elements func(s, n float64) float64
	// Packet is the cost of a first packet at the last position.
	Packet func(s float64) float64
}

const mib = 1 << 20

// Subjects of the model, by name.
func Subjects() map[string]Laws {
	rules := func(s, n float64) float64 { return 30 + 3*s + 3*n }
	return map[string]Laws{
		"kube-proxy/iptables-legacy": {
			FullGo:      func(s, n float64) float64 { return 0.03 + 10e-6*n },
			FullUser:    func(s, n float64) float64 { return 0.01 + 25e-6*n + 0.5e-9*n*n },
			FullSys:     func(s, n float64) float64 { return 0.005 + 5e-6*n },
			PartialGo:   func(s, n, c float64) float64 { return 0.02 + 6e-6*n },
			PartialUser: func(s, n, c float64) float64 { return 0.005 + 5e-6*n + 0.1e-3*c },
			PartialSys:  func(s, n, c float64) float64 { return 0.005 + 4e-6*n },
			RSS:         func(s, n float64) float64 { return 60*mib + 1800*n },
			ChildRSS:    func(s, n float64) float64 { return 10*mib + 2200*n },
			Rules:       rules,
			Packet:      func(s float64) float64 { return 2.5e-6 + 3e-9*s },
		},
		"kube-proxy/nftables": {
			FullGo:      func(s, n float64) float64 { return 0.05 + 8e-6*n },
			FullUser:    func(s, n float64) float64 { return 0.02 + 12e-6*n },
			FullSys:     func(s, n float64) float64 { return 0.01 + 250e-9*s*s },
			PartialGo:   func(s, n, c float64) float64 { return 0.01 + 0.5e-6*n },
			PartialUser: func(s, n, c float64) float64 { return 0.01 + 1e-6*n },
			PartialSys:  func(s, n, c float64) float64 { return 0.01 + 0.8e-9*n*n + 0.2e-3*c },
			RSS:         func(s, n float64) float64 { return 65*mib + 1500*n },
			ChildRSS:    func(s, n float64) float64 { return 30*mib + 2600*n },
			Rules:       func(s, n float64) float64 { return 40 + s + 2*n },
			Elements:    func(s, n float64) float64 { return 2 * s },
			Packet:      func(s float64) float64 { return 4.5e-6 },
		},
		"synclab/iptables-legacy": {
			FullGo:      func(s, n float64) float64 { return 0.02 + 4e-6*n },
			FullUser:    func(s, n float64) float64 { return 0.01 + 45e-6*n },
			FullSys:     func(s, n float64) float64 { return 0.005 + 4e-6*n },
			PartialGo:   func(s, n, c float64) float64 { return 0.002 + 0.02e-3*c },
			PartialUser: func(s, n, c float64) float64 { return 0.004 + 3e-6*n + 0.05e-3*c },
			PartialSys:  func(s, n, c float64) float64 { return 0.004 + 3e-6*n },
			RSS:         func(s, n float64) float64 { return 40*mib + 900*n },
			ChildRSS:    func(s, n float64) float64 { return 10*mib + 1500*n },
			Rules:       rules,
			Packet:      func(s float64) float64 { return 2.5e-6 + 3e-9*s },
		},
		"synclab/nftables": {
			FullGo:     func(s, n float64) float64 { return 0.02 + 6e-6*n },
			FullUser:   func(s, n float64) float64 { return 0 },
			FullSys:    func(s, n float64) float64 { return 0.005 + 4e-6*n },
			PartialGo:  func(s, n, c float64) float64 { return 0.002 + 0.03e-3*c },
			PartialSys: func(s, n, c float64) float64 { return 0.002 + 0.02e-3*c },
			PartialUser: func(s, n, c float64) float64 {
				return 0
			},
			RSS:      func(s, n float64) float64 { return 40*mib + 1000*n },
			Rules:    func(s, n float64) float64 { return 120 },
			Elements: func(s, n float64) float64 { return s + n },
			Packet:   func(s float64) float64 { return 4.1e-6 },
		},
	}
}

// Times multiplies the durations of syncs.
func (l Laws) Times(factor float64) Laws {
	full := func(of func(s, n float64) float64) func(s, n float64) float64 {
		return func(s, n float64) float64 { return factor * of(s, n) }
	}
	partial := func(of func(s, n, c float64) float64) func(s, n, c float64) float64 {
		return func(s, n, c float64) float64 { return factor * of(s, n, c) }
	}
	l.FullGo, l.FullUser, l.FullSys = full(l.FullGo), full(l.FullUser), full(l.FullSys)
	l.PartialGo, l.PartialUser, l.PartialSys = partial(l.PartialGo), partial(l.PartialUser), partial(l.PartialSys)
	return l
}
