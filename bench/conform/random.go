package conform

import (
	"fmt"

	"synclab/sim"
)

// How a random batch is made up.
const (
	// BatchClusters is how many clusters a batch holds, one after the other, in one setting and with one kube-proxy.
	BatchClusters = 25
	// steps is how often something happens to each cluster.
	steps = 3
	// realEvery: in every such batch our proxier runs with real tables too, instead of rendering them.
	realEvery = 8
)

// RandomBatch is the batch that a seed stands for: a setting, and clusters that follow one another.
func RandomBatch(seed uint64, clusters int, limit Constraint) *Batch {
	s := DrawSetting(seed, limit)
	b := &Batch{Name: fmt.Sprintf("seed %d (%s)", seed, s), Setting: s, Node: "node-0", Real: seed%realEvery == 0}
	b.Replay = fmt.Sprintf("synclab compare --rules --random %d --seed %d", clusters, seed)
	if limit.Variant != "" {
		b.Replay += " --variant " + string(limit.Variant)
	}
	if limit.Family != "" {
		b.Replay += " --family " + string(limit.Family)
	}
	n, step := -1, steps
	var cluster *sim.RandomCluster
	b.Next = func() (Step, bool, error) {
		if step++; step <= steps {
			return Step{What: fmt.Sprintf("cluster %d, step %d", n, step), Trace: cluster.Next()}, true, nil
		}
		if n, step = n+1, 0; n == clusters {
			return Step{}, false, nil
		}
		// Far from the seeds of other batches, which are often the next numbers.
		cluster = sim.NewRandomCluster(sim.RandomOptions{Seed: seed*1_000_003 + uint64(n), Families: s.Families})
		return Step{What: fmt.Sprintf("cluster %d", n), Objects: cluster.Objects()}, true, nil
	}
	return b
}
