package manifests

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

// A dump is parsed item by item: no parsed text is as long as the dump. Every YAML or JSON style gives the same
// objects.
func TestReadObjectsItemByItem(t *testing.T) {
	cluster, err := world.Generate(scenarios.Shape{Services: 100}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	if err := WriteObjects(&block, cluster); err != nil {
		t.Fatal(err)
	}
	compact, err := yaml.YAMLToJSON(block.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, compact, "", "  "); err != nil {
		t.Fatal(err)
	}
	kubectl, err := yaml.JSONToYAML(compact) // "kind: List" comes after the items
	if err != nil {
		t.Fatal(err)
	}
	further := strings.ReplaceAll(block.String(), "\n", "\n  ")
	further = strings.NewReplacer("\n  kind: List", "\nkind: List", "\n  items:", "\nitems:").Replace(further)

	defer func(before int) { largestDocument = before }(largestDocument)
	largestDocument = 8 << 10
	if block.Len() < 10*largestDocument {
		t.Fatalf("a dump of %d bytes proves nothing", block.Len())
	}
	var first *sim.Objects
	for _, style := range []struct{ name, text string }{
		{"block", block.String()},
		{"kubectl", string(kubectl)},
		{"indented further", further},
		{"several documents", "# a comment\n---\n" + block.String() + "---\n" + "apiVersion: v1\nkind: ConfigMap\n"},
		{"JSON", indented.String()},
		{"compact JSON", string(compact)},
		{"carriage returns", strings.ReplaceAll(block.String(), "\n", "\r\n")},
	} {
		read, err := ReadObjects([]string{"-"}, strings.NewReader(style.text), ReadOptions{})
		if err != nil {
			t.Errorf("%s: %v", style.name, err)
			continue
		}
		if first == nil {
			first = read
		}
		if len(read.Services) != 100 || !reflect.DeepEqual(read, first) {
			t.Errorf("%s: %d Services, not the first style's objects", style.name, len(read.Services))
		}
	}

	_, err = ReadObjects([]string{"-"}, strings.NewReader("\n\n{apiVersion: v1, kind: List, items: [\n"+strings.Repeat("{},\n", 3000)+"]}"), ReadOptions{})
	if err == nil || !strings.Contains(err.Error(), "cannot be read item by item") || !strings.Contains(err.Error(), "stdin:1: ") {
		t.Errorf("flow style: %v", err)
	}
}

// If the items of a list depend on each other, the list is read as a whole; faults keep their lines.
func TestReadObjectsWholeLists(t *testing.T) {
	const service = "apiVersion: v1\nkind: List\nitems:\n# first\n- apiVersion: v1\n  kind: Service\n  metadata: {name: a, labels: &all {of: all}}\n  spec: {ports: [{port: 80}]}\n"
	for _, test := range []struct {
		about, text, want string // an error; "" if there is none
		services          int
	}{
		{"anchor across items", service + "- apiVersion: v1\n  kind: Service\n  metadata:\n    name: b\n    labels: *all\n  spec: {ports: [{port: 80}]}\n", "", 2},
		{"quoted text at the first column", service + "- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c}\n  data: {text: \"\n- apiVersion\n\"}\n", "", 1},
		{"a list in a list", service + "- apiVersion: v1\n  kind: List\n  items:\n  - apiVersion: v1\n    kind: Service\n    metadata: {name: b}\n    spec: {ports: [{port: 80}]}\n", "", 2},
		{"unknown field", service + "- apiVersion: v1\n  kind: Service\n  metadata: {name: b}\n  spec:\n    ports:\n    - prot: 80\n", "stdin:14: service default/b: spec.ports[0].prot: unknown field", 0},
		{"the same twice", service + "- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n  spec: {ports: [{port: 80}]}\n", "", 1},
		{"no YAML", service + "- apiVersion: v1\n  kind: [\n", "not YAML or JSON", 0},
		{"items twice", service + "items:\n- apiVersion: v1\n", "already set in map", 0},
		{"JSON", "{\"apiVersion\": \"v1\", \"kind\": \"ServiceList\",\n\"items\": [\n{\"metadata\": {\"name\": \"a\"},\n \"spec\": {\"ports\": [{\"port\": 80}]}},\n{\"metadata\": {\"name\": \"b\"},\n \"spec\": {\"port\": 1}}]}",
			"stdin:6: service default/b: spec.port: unknown field", 0},
	} {
		objects, err := ReadObjects([]string{"-"}, strings.NewReader(test.text), ReadOptions{})
		if test.want != "" {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: error %v, want %q", test.about, err, test.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.about, err)
		} else if len(objects.Services) != test.services {
			t.Errorf("%s: %d Services, want %d", test.about, len(objects.Services), test.services)
		}
	}
}
