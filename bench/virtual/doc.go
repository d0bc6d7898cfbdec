// Package virtual lets a proxier live through simulated days in minutes: the real proxier with all of its parts on real
// informers, in virtual time (testing/synctest), over tables in memory, while the cluster changes and faults happen.
// Nothing is measured; promises are checked.
//
// The way of the data:
//
//  1. A seed decides on a Setting (backend, layout, variant, families, pace) and on a script: Actions, each some time
//     after the one before. They are changes of the cluster (sim.World or sim.RandomCluster), faults, and checks. What an
//     Action does may depend on what it finds (it deletes the k-th of the chains that are there), when it comes does not.
//     So a script may lose Actions and still be played.
//  2. A soak plays it. The cluster is a sim.Cluster whose informers feed a proxier.Proxier. The kernel is replaced, one a
//     family: tables (tables.go) put time and faults in front of a model of iptables' or of nftables' tables, and let
//     others write there, too (meddle.go); flows of UDP are in a conntrack.Memory.
//  3. Between Actions time passes: timers run out in their order, and everything that follows has happened before the
//     next Action (synctest.Wait). Syncs take virtual time, so that events, checks and faults come in the middle of them.
//  4. Each phase of a script ends in calm: faults are taken back, and with no further change of the cluster the tables
//     must come to hold what a fresh proxier would write for the same objects, within the time that was promised. Then
//     everything else that was promised is checked (check.go).
//  5. A broken promise is a Violation. Minimize (minimize.go) plays the script again without parts of it, as long as the
//     same promise is broken.
//
// Same seed, same syncs: a Report has a digest of all of them. Where watches are disturbed, that holds for the script and
// not for each sync (Setting.Watches).
//
// Not modelled: the tools, the kernel and its answers other than those that tables give; packets, but for what package
// walk says of them; wall clocks that are set (the proxier measures with the monotonic one, which never is); health
// check node ports.
package virtual
