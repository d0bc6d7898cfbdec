// Package backend defines the interface types of the proxier's backends. A backend turns a plan into the kernel's rules.
//
// The way of the data, for one family:
//
//  1. The engine passes what the plan changed to a backend (plan.Delta). It may pass the same change again.
//  2. A Request asks for a sync: of everything, or of what differs.
//  3. The backend writes the rules and returns a Result: the tools or system calls that ran (Run), what was written and
//     what is installed (Count, by Table), and the Service ports whose rules were refused.
//
// Settings and Local are shared by all backends. kube-proxy's configuration defines their meaning. Each backend writes
// them as rules in a different way.
//
// Not modelled: when to sync, and the post-sync work. The engine does both.
package backend
