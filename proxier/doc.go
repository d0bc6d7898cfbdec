// Package proxier is a Service proxier: it keeps the kernel's rules as the Services and EndpointSlices of a cluster want
// them.
//
// The way of the data, for each IP family on its own:
//
//		tracker → plan → encode → apply        (runner decides when)
//
//	 1. tracker: informer events become previous→current pairs per Service; no-op changes vanish.
//	 2. plan: the touched Service ports are decided again: which endpoints, what if there are none.
//	 3. encode: the backend (Backend in engine.go, made in backends.go) writes the difference between what is installed and
//	    what is planned. Package iptables does in two layouts, through iptables-restore in either variant, in as many
//	    restores as cost least, or itself (iptables/direct); package nftables has maps in a table of its own, over netlink.
//	 4. apply: the kernel takes it, with every phase timed. What it refuses is isolated, and reported (refused.go).
//	 5. post-sync work (aftercare.go): health checks told, metrics counted, stale UDP flows cleaned. It is part of a sync's
//	    duration, as in kube-proxy. A cleaning that fails is retried, and fails no sync (conntrack_care.go).
//
// A sync that fails gives its changes back to the tracker, with their trigger times and the conntrack work that would
// have followed, and is retried whoever asked for it. Once every sync period the tables are compared with what should
// be in them (drift.go), in clusters of any size, if anybody else may have changed them.
//
// What rules may use of the kernel and of iptables is found out at the start (machine.go), and done without should it
// turn out not to work.
//
// Nothing in here knows the clock, randomness, a metrics registry or a cluster but through what is passed in, so many
// simulated nodes may run in one process.
package proxier
