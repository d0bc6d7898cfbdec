package yamldoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Tree has the lines of a text's fields.
type Tree struct{ root *yaml.Node }

// Parse returns the tree of a text; nil, which has no fields, if the text is not YAML.
func Parse(text []byte) *Tree {
	if json.Valid(text) {
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" ")) // YAML has no tabs; in valid JSON they are only white space
	}
	var node yaml.Node
	if yaml.Unmarshal(text, &node) != nil || len(node.Content) == 0 {
		return nil
	}
	return &Tree{node.Content[0]}
}

// Line returns the line of a field by its path, such as spec.ports[0].port. If the text does not have the field, it is the
// line of the innermost part of the path that exists, or 0.
func (t *Tree) Line(path string) (line int, found bool) {
	if t == nil || t.root == nil {
		return 0, false
	}
	return lineIn(t.root, t.root.Line, path)
}

// lineIn returns the line of a field in a node, which is on a line itself. Keys may have dots and brackets, too. Of a key
// that is set twice, the last value counts.
func lineIn(node *yaml.Node, line int, path string) (int, bool) {
	if path = strings.TrimPrefix(path, "."); path == "" {
		return line, true
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	innermost := line
	switch node.Kind {
	case yaml.SequenceNode:
		number, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(node.Content) {
			return lineIn(node.Content[i], node.Content[i].Line, rest)
		}
	case yaml.MappingNode:
		for i := len(node.Content) - 2; i >= 0; i -= 2 {
			key := node.Content[i]
			rest, isPart := strings.CutPrefix(path, key.Value)
			if !isPart {
				rest, isPart = strings.CutPrefix(path, "["+key.Value+"]")
			}
			if !isPart || key.Value == "" || rest != "" && rest[0] != '.' && rest[0] != '[' {
				continue
			}
			at, found := lineIn(node.Content[i+1], key.Line, rest)
			if found {
				return at, true
			}
			if innermost == line {
				innermost = at
			}
		}
	}
	return innermost, false
}

// Key is a key of a mapping.
type Key struct {
	Name, Path string
	Line       int
}

// Repeated returns each key that its mapping has already, with the place of the repetition. merges: it follows aliases, and
// keys of a merge ("<<") count, too. It then needs a text that a decoder accepts, so that no alias is inside of its anchor.
func (t *Tree) Repeated(merges bool) (keys []Key) {
	var walk func(node *yaml.Node, path string, seen map[string]bool)
	walk = func(node *yaml.Node, path string, seen map[string]bool) {
		if merges && node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			if merges && key.Tag == "!!merge" {
				from := []*yaml.Node{value}
				if value.Kind == yaml.SequenceNode {
					from = value.Content
				}
				for _, mapping := range slices.Backward(from) { // of several, the first counts
					walk(mapping, path, seen)
				}
				continue
			}
			field := Join(path, key.Value)
			if key.Kind == yaml.ScalarNode {
				if seen[key.Value] {
					keys = append(keys, Key{key.Value, field, key.Line})
				}
				seen[key.Value] = true
			}
			walk(value, field, map[string]bool{})
		}
		for i := 0; node.Kind == yaml.SequenceNode && i < len(node.Content); i++ {
			walk(node.Content[i], Element(path, i), map[string]bool{})
		}
	}
	if t != nil && t.root != nil {
		walk(t.root, "", map[string]bool{})
	}
	return keys
}

// Join returns the path of a member of a mapping.
func Join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// Element returns the path of an element of a list.
func Element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
