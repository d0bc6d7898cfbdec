// Package cgroup makes cgroups of version 2.
//
//  1. Limit puts a process into a group with a memory limit. It enables the parent's memory accounting if necessary.
//  2. Join moves this process into a group of its own, to which programs can be attached.
//  3. Both return a function that removes the group and restores the parent. Sweep does so for the groups of killed runs,
//     when they are a minute old.
//
// Not modelled: version 1, and parents that the user may not write to: then both fail. A process that has joined a group
// gets no group with a limit below it, since the kernel wants such groups to have no processes beside them.
package cgroup
