package conform

import (
	"fmt"

	"synclab/sim/random"
)

// The shape of a random batch.
const (
	// BatchClusters is the number of clusters in a batch. They follow one another in one setting and with one
	// kube-proxy.
	BatchClusters = 25
	// steps is the number of changes to each cluster.
	steps = 3
	// realEvery is the interval of batches in which Synclab's proxier runs with real tables too, instead of rendering
	// them.
	realEvery = 8
)

// RandomBatch returns the batch of a seed: a setting, and clusters that follow one another.
func RandomBatch(seed uint64, clusters int, limit Constraint) *Batch {
	s := DrawSetting(seed, limit)
	b := &Batch{Name: fmt.Sprintf("seed %d (%s)", seed, s), Setting: s, Node: "node-0", Real: seed%realEvery == 0}
	b.Again.Flags = [][2]string{{"random", fmt.Sprint(clusters)}, {"seed", fmt.Sprint(seed)}, {"variant", string(limit.Variant)}, {"filename"}, {"then"}}
	n, step := -1, steps
	var cluster *random.Cluster
	b.Next = func() (Step, bool, error) {
		if step++; step <= steps {
			return Step{What: fmt.Sprintf("cluster %d, step %d", n, step), Trace: cluster.Next()}, true, nil
		}
		if n, step = n+1, 0; n == clusters {
			return Step{}, false, nil
		}
		// The seeds of other batches are often the next numbers: keep far from them.
		cluster = random.New(random.Options{Seed: seed*1_000_003 + uint64(n), Families: s.Families, ForOldProxies: isOld(limit.Minor), NoOpenRanges: 0 < limit.Minor && limit.Minor < openRanges})
		return Step{What: fmt.Sprintf("cluster %d", n), Objects: cluster.Objects()}, true, nil
	}
	return b
}
