// Package manifests reads clusters from files, and writes them.
//
//  1. ReadObjects reads files, folders and archives (input.go), and their objects item by item: manifests, dumps of kubectl
//     and support bundles, as YAML or JSON (source.go, syntax.go, decode.go, list.go).
//  2. Redacted addresses get new ones (redacted.go).
//  3. What an API server and its controllers would add is added: defaults, addresses and ports (allocator*.go), pods of
//     workloads (pods.go), slices (slices.go), nodes (nodes.go) and UIDs.
//  4. Errors name file, line, object and field (mismatch.go). An object of an API server may have what a new one may not,
//     with a Warning; one that cannot be used is left out (leftout.go).
//  5. WriteObjects writes a cluster as a list.
package manifests
