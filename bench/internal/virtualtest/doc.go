// Package virtualtest runs a proxier through simulated days in minutes, while the cluster changes and faults happen. The
// real proxier runs on real informers, in virtual time (testing/synctest), with tables in memory. Nothing is measured;
// properties are checked.
//
// The way of the data:
//
//  1. A seed determines a Setting (backend, layout, variant, families, pace) and a script. The script is a list of
//     Actions, each some time after the previous one: changes of the cluster (sim/world or sim/random), faults,
//     and checks. An Action's effect may depend on the current state (it deletes the k-th existing chain), but its time
//     does not. So a script can be replayed without some of its Actions.
//  2. A soak runs the script. The cluster is a api.Cluster whose informers feed a proxier.Proxier. Each family has a
//     replacement of the kernel. Its tables (tables.go) add time and faults to a model of the iptables or nftables
//     tables. They also simulate writes of other processes (externalWrite.go). UDP flows are in a conntrack.Memory.
//  3. Between Actions virtual time passes: timers expire in order, and all their consequences happen before the next
//     Action (synctest.Wait). Syncs take virtual time, so events, checks and faults can happen during a sync.
//  4. Each phase of a script ends in calm: faults are cleared and the cluster does not change. Within a time limit, the
//     tables must converge to what a fresh proxier would write for the same objects. Then all other properties are
//     checked (check.go).
//  5. A violated property is a Violation. Minimize (minimize.go) replays the script without some of its parts, as long
//     as the same property is violated.
//
// The same seed gives the same syncs: a Report has a digest of all syncs. With disturbed watches, the same seed gives
// only the same script (Setting.Watches).
//
// Not modelled: the tools, the kernel beyond its tables, packets outside the ruleset evaluator, health check node
// ports, and changes of the wall clock. The proxier uses the monotonic clock.
package virtualtest
