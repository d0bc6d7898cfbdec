// Package manifests reads clusters from files, and writes them.
//
//  1. ReadObjects reads manifests and dumps of kubectl, as YAML or JSON, item by item (source.go, decode.go, list.go).
//  2. What an API server and its controllers would add is added: defaults, addresses and ports (allocator*.go), pods of
//     workloads (pods.go), slices (slices.go) and nodes (nodes.go).
//  3. Errors name file, line, object and field. Legacy spellings of dumps are accepted with a Warning.
//  4. WriteObjects writes a cluster as a list.
package manifests
