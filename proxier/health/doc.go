// Package health tells others how a proxier is: load balancers and the kubelet
// whether the node should have traffic (/healthz), whether the process should
// be restarted (/livez), and load balancers of a Service with external traffic
// policy Local whether this node has an endpoint (health check nodePorts).
//
// The way of an answer:
//
//  1. The sync loop of each family reports to a Server: QueuedUpdate,
//     SyncStarted, then Updated or Failed; whoever finds drift reports Drifted.
//  2. A family is unhealthy once something desired has been missing from the
//     kernel for two sync periods.
//  3. Handler answers over HTTP; the lab, and ServiceServers, ask Healthy.
//
// Bodies, headers and status codes are kube-proxy's; times are RFC 3339. A
// family's status has more members when something is missing: since when, the
// last cause, and what the kernel refuses.
//
// What it does differently from kube-proxy 1.36, and why:
//
//   - A failed sync counts as a queued update from its start until a sync
//     succeeds. kube-proxy counts updates from the API only, so that the first
//     sync, or one that the canary monitor started, may fail for ever while
//     /healthz says 200.
//   - Drift counts in the same way: rules that someone deleted are missing
//     whether or not an event came in.
//   - A family that never synced is missing everything since the Server was
//     made. kube-proxy calls it healthy as long as it has not synced once.
//   - An update that comes in while a sync runs is not in that sync, and stays
//     queued when the sync succeeds. kube-proxy forgets it, and its age starts
//     anew with the next update.
//   - A Service port whose rules the kernel refuses does not make the proxier
//     unhealthy. A restart would not help it, and every node would be taken from
//     its load balancers for one bad object that all of them refuse alike. It is
//     named in the answers, a metric counts it, and the health check nodePort of
//     its Service says 503. With kube-proxy such a rule fails the restore of all
//     Services, and /healthz with it.
//   - A health check port that cannot be opened at one address does not close
//     the others; the address is tried again at each Open, and so is one whose
//     listener broke later.
//   - The addresses to listen at follow those of the node. kube-proxy takes
//     what nodePortAddresses select when it starts.
//
// Not modelled: listening itself for Handler (the lab serves it where it likes,
// also without a socket), and Kubernetes events, which OnFailure stands for.
package health
