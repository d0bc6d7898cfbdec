package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"synclab/internal/yamldoc"
)

// tree is a scenario as YAML nodes, before it is decoded.
type tree struct {
	name string // of the file, or of the library scenario
	root *yaml.Node
	// origins maps each node that is not in the file to the override that added it.
	origins map[*yaml.Node]string
}

// maxBytes bounds a scenario file. The library's are about 1 KiB.
const maxBytes = 1 << 20

func parse(name string, text []byte) (*tree, error) {
	fail := func(line int, text string) error {
		where := name
		if line > 0 {
			where = fmt.Sprintf("%s:%d", name, line)
		}
		return Problems{{Where: where, Text: text}}
	}
	if len(text) > maxBytes {
		return nil, fail(0, fmt.Sprintf("%s bytes are too many for a scenario: want at most %s", thousands(len(text)), thousands(maxBytes)))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, fail(0, "is empty: want a mapping with the fields "+strings.Join(namesOf(scenarioType), ", "))
	case err != nil:
		line, reason := yamldoc.Syntax(text, err)
		return nil, fail(line, "is not YAML: "+reason)
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, fail(max(second.Line, 1), "a second document begins: want one scenario a file")
	}
	return &tree{name: name, root: document.Content[0], origins: map[*yaml.Node]string{}}, nil
}

// place returns where a node was written: "file:line", or the override.
func (t *tree) place(n *yaml.Node) string {
	if origin, ok := t.origins[n]; ok {
		return origin
	}
	if t.name == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", t.name, max(n.Line, 1))
}

// mark records that an override added n and all nodes below it.
func (t *tree) mark(n *yaml.Node, origin string) {
	t.origins[n] = origin
	for _, c := range n.Content {
		t.mark(c, origin)
	}
}

// override applies one "a.b=c".
func (t *tree) override(assignment string) *Problem {
	origin := "--set " + assignment
	path, value, ok := strings.Cut(assignment, "=")
	if path = strings.TrimSpace(path); !ok || path == "" {
		return &Problem{Where: origin, Text: "want path=value, such as shape.services=5000"}
	}
	return t.set(path, value, origin)
}

// set replaces the value at a path. It checks the path against the types; the value is checked later, with all others.
func (t *tree) set(path, value, origin string) *Problem {
	n, typ, undo, p := t.find(path, origin)
	if p != nil {
		return p
	}
	if text := t.replace(n, typ, value, origin); text != "" {
		undo()
		return &Problem{Where: origin, Path: path, Text: text}
	}
	return nil
}

// find returns the node at a path, and creates missing mappings on the way to it. undo removes those mappings, so that
// a failed override leaves nothing incomplete that would be reported again.
func (t *tree) find(path, origin string) (n *yaml.Node, typ reflect.Type, undo func(), p *Problem) {
	n, typ = t.root, scenarioType
	at := ""
	var made *yaml.Node // the first mapping that got a new key, if any
	undo = func() {
		if made != nil {
			made.Content = made.Content[:len(made.Content)-2]
		}
	}
	child := func(key string) *yaml.Node {
		before := len(n.Content)
		c := t.child(n, key, origin)
		if made == nil && len(n.Content) > before {
			made = n
		}
		return c
	}
	elements := strings.Split(path, ".")
	for e := 0; e < len(elements); e++ {
		element := elements[e]
		t.openMapping(n, typ, origin)
		var text string
		where := at
		switch typ.Kind() {
		case reflect.Struct:
			f, ok := fieldNamed(typ, element)
			if !ok {
				where = join(at, element)
				text, _ = unknownField(typ, element)
			} else if text = otherKind(n, typ, element); text == "" {
				n, typ = child(element), f.typ
			}
		case reflect.Map:
			n, typ = child(element), typ.Elem()
		case reflect.Slice:
			var i int
			if i, text = indexOf(n, typ, element); text == "" {
				if _, kind := fieldNamed(stepType, element); kind && typ.Elem() == stepType {
					elements = slices.Insert(elements, e+1, element) // steps.churn is steps.<i>.churn
				}
				n, typ, element = n.Content[i], typ.Elem(), strconv.Itoa(i)
			}
		default:
			text = "is a single value: it has no " + quote(element)
		}
		if text != "" {
			undo()
			return nil, nil, nil, &Problem{Where: origin, Path: where, Text: text}
		}
		at = join(at, element)
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
	}
	return n, typ, undo, nil
}

// openMapping makes a mapping of its short forms: nothing, or a kind alone.
func (t *tree) openMapping(n *yaml.Node, typ reflect.Type, origin string) {
	switch key, ok := shorthand[typ]; {
	case typ.Kind() != reflect.Struct && typ.Kind() != reflect.Map:
	case ok && isText(n):
		kind := *n
		*n = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line}
		*t.child(n, key, origin) = kind
	case isNull(n):
		*n = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line}
	}
}

// child returns the value of a key in a mapping, and adds the key if it is missing.
func (t *tree) child(n *yaml.Node, key, origin string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	k := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
	v := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	t.origins[k], t.origins[v] = origin, origin
	if n.Kind == yaml.MappingNode {
		n.Content = append(n.Content, k, v)
	}
	return v
}

// otherKind refuses a second kind for a step: the path has the wrong index.
func otherKind(n *yaml.Node, typ reflect.Type, kind string) string {
	if typ != stepType || n.Kind != yaml.MappingNode || len(n.Content) == 0 || n.Content[0].Value == kind {
		return ""
	}
	return fmt.Sprintf("is a %s step, not %s (steps count from 0; steps.%s names the only step of its kind)",
		n.Content[0].Value, kind, kind)
}

// indexOf returns the index in a list that a path element names: a number from 0, or a step kind that occurs once.
func indexOf(n *yaml.Node, typ reflect.Type, element string) (int, string) {
	length := 0
	if n.Kind == yaml.SequenceNode {
		length = len(n.Content)
	}
	if typ.Elem() == stepType {
		if _, ok := fieldNamed(stepType, element); ok {
			return stepOfKind(n, element)
		}
	}
	i, err := strconv.Atoi(element)
	switch {
	case length == 0:
		return 0, "is an empty list: set it as a whole, such as [a, b]"
	case err != nil || i < 0 || i >= length:
		text := fmt.Sprintf("has no %s: want 0 to %d", quote(element), length-1)
		if typ.Elem() == stepType {
			text += ", or the kind of a step: " + strings.Join(namesOf(stepType), ", ")
		}
		return 0, text
	}
	return i, ""
}

func stepOfKind(n *yaml.Node, kind string) (int, string) {
	var at []string
	found := 0
	for i, step := range n.Content {
		if step.Kind == yaml.MappingNode && len(step.Content) > 0 && step.Content[0].Value == kind {
			at, found = append(at, fmt.Sprintf("steps.%d", i)), i
		}
	}
	switch len(at) {
	case 0:
		return 0, fmt.Sprintf("has no %s step", kind)
	case 1:
		return found, ""
	}
	return 0, fmt.Sprintf("has several %s steps: say which of %s", kind, strings.Join(at, ", "))
}

// replace puts the value in the place of n. Text is taken as written; all else is YAML: 5000, 1s, [IPv4, IPv6].
func (t *tree) replace(n *yaml.Node, typ reflect.Type, value, origin string) string {
	replacement := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	if typ.Kind() != reflect.String {
		parsed, err := parse("value", []byte(value))
		switch {
		case strings.TrimSpace(value) == "":
			return "no value: want " + expected("", typ)
		case err != nil:
			return quote(value) + " is not YAML"
		}
		replacement = parsed.root
	}
	*n = *replacement
	t.mark(n, origin)
	return ""
}
