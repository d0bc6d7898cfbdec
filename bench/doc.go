// Package bench drives subjects in namespaces of its own and writes down what it measures.
package bench
