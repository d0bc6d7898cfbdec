// Package conform compares what two proxiers make of the same clusters, rule for rule: our proxier, layout classic, and
// an unmodified kube-proxy. It measures nothing. The way of the data:
//
//  1. A Setting, drawn from a seed, is a KubeProxyConfiguration, a variant of iptables and the families of a cluster. A
//     Batch is the life of clusters in one setting: random ones (sim.RandomCluster), those of scenarios, or objects of
//     files, one after the other, so that partial syncs are compared too.
//  2. A feed applies each step to a sim.Cluster. kube-proxy runs in a network namespace of its own and watches it
//     through the API front (sim/front); our proxier renders the same objects (proxier.Render), or, as Subject.Real,
//     runs with real tables and partial syncs in another namespace.
//  3. A signal Service, changed last, shows by the name of one chain that kube-proxy has seen all that came before.
//  4. Parse, Reachable and Group read iptables-save (or the model) into rules by Service; Diff compares them.
//  5. explain tries the entries of docs/differences.md on what differs. An entry is no filter: it predicts what
//     kube-proxy makes of the objects, and explains a difference only where the prediction holds rule for rule.
//  6. Minimize drops what a difference does not need.
//
// Compared are the rules that packets can reach from a hook, without counters. The order of rules counts within a
// Service port, and not between Service ports in a shared chain: there kube-proxy draws lots at every sync. Not
// compared: chains that nothing leads to, which kube-proxy keeps until its next cleanup (a difference of time, not of
// rules), KUBE-PROXY-CANARY, sysctls, health checks, and flows.
package conform
