package visible

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"synclab/bench/traffic"
)

func addrs(last ...byte) (out []netip.AddrPort) {
	for _, b := range last {
		out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, b}), 80))
	}
	return out
}

// seenFlow is a flow that was sent and ended at times in ms, and its endpoint; 0 if none answered.
type seenFlow struct {
	sent, end int
	by        byte
}

// flows returns flows to endpoints in turn, a millisecond apart.
func flows(from int, by ...byte) (out []seenFlow) {
	for i, b := range by {
		out = append(out, seenFlow{from + i, from + i, b})
	}
	return out
}

// A state is reached with the first answer of a new endpoint, and once removed endpoints no longer answer. Flows from
// before the change say nothing. A flow that does not fit begins the count again.
func TestPacketsJudge(t *testing.T) {
	for name, c := range map[string]struct {
		had, to   []byte
		affinity  bool
		flows     []seenFlow
		at, since int // ms; at 0: not reached
		unseen    bool
	}{
		"first answer":           {nil, []byte{1, 2}, false, []seenFlow{{11, 12, 0}, {13, 14, 2}}, 14, 11, false},
		"before the change":      {[]byte{1}, []byte{1, 2}, false, []seenFlow{{9, 20, 2}}, 0, 0, false},
		"added":                  {[]byte{1}, []byte{1, 2}, false, flows(11, 1, 1, 2), 13, 10, false},
		"added, not reached":     {[]byte{1}, []byte{1, 2}, false, flows(11, 1, 1, 1, 1), 0, 0, false},
		"removed":                {[]byte{1, 2}, []byte{1}, false, append(flows(11, 1, 2), flows(13, slices.Repeat([]byte{1}, 10)...)...), 13, 12, false},
		"removed, too few":       {[]byte{1, 2}, []byte{1}, false, append(flows(11, 1, 2), flows(13, slices.Repeat([]byte{1}, 9)...)...), 0, 0, false},
		"replaced":               {[]byte{1}, []byte{2}, false, flows(11, 1, 2, 2, 2), 12, 11, false},
		"all removed":            {[]byte{1}, nil, false, flows(11, 1, 0, 0, 0), 12, 11, false},
		"address of another":     {[]byte{1}, nil, false, flows(11, 9, 9, 9), 11, 10, false},
		"a stranger answers":     {[]byte{1}, []byte{1, 2}, false, flows(11, 9), 0, 0, false},
		"late timeout":           {[]byte{1}, []byte{2}, false, []seenFlow{{12, 13, 2}, {14, 15, 2}, {11, 510, 0}, {16, 17, 2}}, 13, 11, false},
		"affinity, first":        {nil, []byte{1, 2}, true, flows(11, 1), 11, 10, false},
		"affinity, added":        {[]byte{1}, []byte{1, 2}, true, flows(11, 1), 11, 10, true},
		"affinity, replaced":     {[]byte{1}, []byte{2}, true, flows(11, 1, 2, 2, 2), 12, 11, false},
		"cluster IP not changed": {[]byte{1}, []byte{1}, false, flows(11, 1), 11, 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			moment := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
			port := &askedPort{answers: addrs(c.had...), affinity: c.affinity}
			state := &expected{answers: addrs(c.to...), made: moment(10)}
			for i, f := range c.flows {
				by := netip.AddrPort{}
				if f.by != 0 {
					by = addrs(f.by)[0]
				}
				at, since, reached, unseen := port.judge(state, by, moment(f.sent), moment(f.end))
				if !reached {
					continue
				}
				if i < len(c.flows)-1 {
					t.Fatalf("reached after flow %d of %d", i+1, len(c.flows))
				}
				if !at.Equal(moment(c.at)) || !since.Equal(moment(c.since)) || unseen != c.unseen {
					t.Errorf("reached at %v, since %v, unseen %v; want %d, %d, %v", at.Sub(epoch), since.Sub(epoch), unseen, c.at, c.since, c.unseen)
				}
				return
			}
			if c.at != 0 {
				t.Errorf("not reached: %+v", state)
			}
		})
	}
}

// Of the states that a port is to reach, the latest one that packets show counts. Later states count from there.
func TestPacketsSupersede(t *testing.T) {
	moment := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	r := &packets{sampler: &traffic.Sampler{}, ports: map[portKey]*askedPort{}}
	port := &askedPort{target: -1, answers: addrs(1)}
	for i, to := range [][]byte{{1, 2}, {2, 3}, {2}} {
		port.queue = append(port.queue, &expected{state: State{Cluster: []string{string(rune('a' + i))}}, answers: addrs(to...), made: moment(10 * (i + 1))})
	}
	r.reach(port, 1, moment(25), moment(24), false)
	if !slices.Equal(port.shown.Cluster, []string{"b"}) || !port.shown.At.Equal(moment(25)) || len(port.queue) != 1 || !slices.Equal(port.answers, addrs(2, 3)) {
		t.Errorf("shown %+v, %d states left, answers %v", port.shown, len(port.queue), port.answers)
	}
	if _, _, reached, _ := port.judge(port.queue[0], addrs(2)[0], moment(31), moment(31)); reached {
		t.Error("one flow in two may go to the removed endpoint: one flow shows nothing")
	}
}
