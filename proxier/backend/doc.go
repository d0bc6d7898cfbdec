// Package backend is what every backend of the proxier takes and gives: a backend turns a plan into the kernel's rules.
//
// The way of the data, for one family:
//
//  1. The engine tells a backend what the plan changed (plan.Delta), as often as it likes.
//  2. A Request asks for a sync: of everything, or of what differs.
//  3. The backend brings the kernel there, and gives back a Result: the tools or system calls it took (Run), what it
//     wrote and what is installed (Count, by Table), and the Service ports whose rules were refused.
//
// What is shared by backends has its form here (Settings, Local) and its meaning in kube-proxy's configuration; how it
// is spelled in rules is each backend's own.
//
// Not modelled: when to sync, and what follows from a sync. That is the engine's.
package backend
