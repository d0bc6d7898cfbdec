package raw

import "fmt"

// Shard is the part of a sweep that one machine does, as in run.json. A unit is one repetition of one cell with all its
// subjects. They take turns on one machine, so that no comparison mixes machines.
type Shard struct {
	Shard int `json:"shard"` // from 0
	Of    int `json:"of"`
	// Sweep is the digest of everything that decides what the shards measure. Only shards with the same digest belong
	// together.
	Sweep string `json:"sweep"`
	// Total is the number of units in all shards, Units that in this one.
	Total int `json:"total"`
	Units int `json:"units"`
	// Host that ran the shard: SYNCLAB_HOST, else the machine's name.
	Host string `json:"host"`
}

// String returns the short form "3/40".
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Shard, s.Of) }
