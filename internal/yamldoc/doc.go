// Package yamldoc reads the documents of YAML and JSON files, and says with lines and in words what is wrong with them.
//
//  1. Split divides a file into documents.
//  2. Syntax explains an error of the YAML parser.
//  3. A Tree has the line of each field, and finds keys that are set twice.
//  4. Mismatches compares the values with a Go type. Decoders stop at the first value that does not fit, name Go types
//     instead of fields, and do not say which item of a list it is.
//
// Not modelled: decoding itself. sigs.k8s.io/yaml and sigs.k8s.io/json do that, as in Kubernetes.
package yamldoc
