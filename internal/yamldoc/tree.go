package yamldoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Tree has the lines of a text's fields.
type Tree struct{ root *yaml.Node }

// Parse returns the tree of a text. That of a text that is not YAML has no fields.
func Parse(text []byte) Tree {
	if json.Valid(text) {
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" ")) // YAML has no tabs; in valid JSON they are only white space
	}
	var node yaml.Node
	if yaml.Unmarshal(text, &node) != nil || len(node.Content) == 0 {
		return Tree{}
	}
	return Tree{node.Content[0]}
}

// Line returns the line of a field. If the text does not have the field, it is the line of the innermost part of the path
// that exists, or 0.
func (t Tree) Line(steps ...string) (line int, found bool) {
	if t.root == nil {
		return 0, false
	}
	node, line := t.root, t.root.Line
	for _, step := range steps {
		next, at := child(node, step)
		if next == nil {
			return line, false
		}
		node, line = next, at
	}
	return line, true
}

var pathStep = regexp.MustCompile(`[^.\[\]]+`)

// Steps divides a path, such as spec.ports[0].port.
func Steps(path string) []string { return pathStep.FindAllString(path, -1) }

// child returns the member of a mapping or the item of a sequence, and its line. Of a key that is set twice, the last value
// counts.
func child(node *yaml.Node, step string) (*yaml.Node, int) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	case yaml.MappingNode:
		for i := len(node.Content) - 2; i >= 0; i -= 2 {
			if node.Content[i].Value == step {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	}
	return nil, 0
}

// Key is a key of a mapping.
type Key struct {
	Name, Path string
	Line       int
}

// Repeated returns the keys that a mapping has already. A key that overrides that of a merge ("<<") is none.
func (t Tree) Repeated() (keys []Key) {
	var walk func(node *yaml.Node, path string)
	walk = func(node *yaml.Node, path string) {
		seen := map[string]bool{}
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			field := join(path, key.Value)
			if key.Kind == yaml.ScalarNode {
				if seen[key.Value] {
					keys = append(keys, Key{key.Value, field, key.Line})
				}
				seen[key.Value] = true
			}
			walk(node.Content[i+1], field)
		}
		for i := 0; node.Kind == yaml.SequenceNode && i < len(node.Content); i++ {
			walk(node.Content[i], element(path, i))
		}
	}
	if t.root != nil {
		walk(t.root, "")
	}
	return keys
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
