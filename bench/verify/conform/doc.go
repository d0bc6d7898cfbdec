// Package conform compares the rules that two proxiers write for the same clusters, rule for rule: Synclab's proxier in
// layout classic, and an unmodified kube-proxy. It measures nothing. The way of the data:
//
//  1. A Setting, drawn from a seed, is a KubeProxyConfiguration, an iptables variant and the IP families of a cluster.
//     A Batch is a sequence of clusters in one setting, so that partial syncs are compared too. The clusters are random
//     (sim/random), come from scenarios, or are read from files.
//  2. A feed applies each step to a api.Cluster. kube-proxy runs in a separate network namespace and watches the
//     cluster through the fake API server (sim/front). Synclab's proxier renders the same objects (proxier.Render).
//     With Subject.Real it runs with real tables and partial syncs in another namespace.
//  3. The feed changes a signal Service last. The name of one chain then shows that kube-proxy has seen all changes
//     before.
//  4. Package rule, Reachable and Group turn the output of iptables-save (or the model) into rules by Service. Diff compares
//     them.
//  5. explain tries the entries of docs/differences.md on each difference. An entry is no filter: it predicts the rules
//     of kube-proxy. It explains a difference only if the prediction is right rule for rule.
//     When the node changes so that kube-proxy exits, both sides are started again, as by a kubelet.
//  6. Minimize removes all objects and fields that a difference does not need.
//
// The comparison covers the rules that packets can reach from a hook, without counters. The order of rules counts
// within a Service port. It does not count between Service ports in a shared chain: kube-proxy orders those at random
// at every sync. Not compared: KUBE-PROXY-CANARY, sysctls, health checks, flows, and chains without a jump to them.
// kube-proxy keeps such chains until its next cleanup, which is a difference in time, not in rules.
package conform
