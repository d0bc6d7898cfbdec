// Package root finds the tools of another system in a folder that is its root: an unpacked image, or unpacked packages.
// They run here, without a change of root, by their own loader and libraries.
//
//  1. Resolve (resolve.go) follows links as that system would: an absolute link begins at the folder, and no ".." leaves it.
//  2. Find (tools.go) finds a tool and its loader, which its ELF file names.
//  3. Libraries finds all libraries that programs need, with those that they need in turn. Nothing of this machine's may
//     take the place of a missing one.
//
// Not modelled: tools that are scripts; iptables before 1.8, which has no names with a variant; other processors.
package root
