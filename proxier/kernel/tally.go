package kernel

import (
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/xtables"
)

// tallyLegacy counts the entries between the two that begin and end a chain: a hook's entry point and its policy, or a
// user chain's head and its return.
func tallyLegacy(family corev1.IPFamily, table string) (map[string]int, error) {
	t, err := readLegacy(family, table)
	if err != nil || t == nil {
		return nil, err
	}
	defer t.Close()
	starts := map[int]string{}
	for hook, name := range xtables.HookNames {
		if t.Info.ValidHooks>>hook&1 == 1 {
			starts[int(t.Info.HookEntry[hook])] = name
		}
	}
	tally := map[string]int{}
	chain := ""
	err = t.EachEntry(func(e xtables.Entry) {
		if name, builtin := starts[e.At]; builtin {
			chain = name
			tally[chain] = -1 // the policy's entry is no rule
		}
		if head := e.Head(); head != nil {
			chain = string(head)
			tally[chain] = -1 // nor is the chain's return
			return
		}
		tally[chain]++
	})
	return tally, err
}
