// Package scenarios holds the scenario library and reads scenarios: what to try, in YAML.
package scenarios
