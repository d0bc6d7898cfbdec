package manifests

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	casejson "sigs.k8s.io/json"

	"synclab/internal/yamldoc"
)

// largestDocument is the size in bytes of the largest text that is parsed at once. Parsing YAML takes up to 70 times the
// text's size in memory. A list is parsed item by item.
var largestDocument = 4 << 20

// mostItems limits the items of a list: 200,000 Services of 10 endpoints have some 500,000 objects.
const mostItems = 2_000_000

// onlyItem is the path of the only object in a YAML sequence.
const onlyItem = "[0]"

// cutList divides a list into its items, to be parsed one by one, and the text around them. It returns no items if the
// document is not a list or can only be parsed as a whole.
func (d *document) cutList() (around []byte, items []*fragment) {
	switch trimmed := bytes.TrimSpace(d.text); {
	case bytes.HasPrefix(trimmed, []byte("{")):
		return d.cutJSON()
	case bytes.HasPrefix(trimmed, []byte("[")):
		decoder := json.NewDecoder(bytes.NewReader(d.text))
		if items = d.cutItems(decoder); yamldoc.HasContent(d.text[decoder.InputOffset():]) {
			return nil, nil
		}
		return []byte("apiVersion: v1\nkind: List\n"), items
	}
	return d.cutYAML()
}

// part returns the piece of a document from one offset to another.
func (d *document) part(from, to int) *document {
	return &document{file: d.file, found: d.found, above: d.above + bytes.Count(d.text[:from], []byte("\n")), text: d.text[from:to]}
}

func (d *document) cutJSON() (around []byte, items []*fragment) {
	decoder := json.NewDecoder(bytes.NewReader(d.text))
	if _, err := decoder.Token(); err != nil {
		return nil, nil
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, nil
		}
		var value json.RawMessage
		if key != "items" || items != nil {
			if decoder.Decode(&value) != nil {
				return nil, nil
			}
			continue
		}
		first := bytes.IndexByte(d.text[decoder.InputOffset():], '[') + 1 + int(decoder.InputOffset())
		if items = d.cutItems(decoder); items == nil {
			return nil, nil
		}
		last := int(decoder.InputOffset()) - 1
		around = append(append(around, d.text[:first]...), d.text[last:]...)
	}
	return around, items
}

// cutItems divides a JSON array, which the decoder reads next. It returns nil if there is none.
func (d *document) cutItems(decoder *json.Decoder) []*fragment {
	if open, err := decoder.Token(); err != nil || open != json.Delim('[') {
		return nil
	}
	var value json.RawMessage
	var items []*fragment
	line, counted := d.above, 0
	for decoder.More() {
		if decoder.Decode(&value) != nil || len(items) == mostItems {
			return nil
		}
		end := int(decoder.InputOffset())
		begin := end - len(value)
		line += bytes.Count(d.text[counted:begin], []byte("\n"))
		counted = begin
		items = append(items, &fragment{document: &document{file: d.file, found: d.found, above: line, text: d.text[begin:end]}})
	}
	if _, err := decoder.Token(); err != nil {
		return nil
	}
	return items
}

// cutYAML divides a list in block style, as kubectl writes it: a row "items:", then rows that begin with "-", all at one
// column. The text inside an item is indented further, so such a row always begins an item. The one exception is a quoted
// text that continues at the first column; its pieces are not valid YAML, and parseItems fails.
func (d *document) cutYAML() (around []byte, items []*fragment) {
	const before, first, within, after = 0, 1, 2, 3
	state, column := before, 0
	offset, begin, line, beginLine := 0, 0, d.above, 0
	flush := func(end int) {
		items = append(items, &fragment{path: onlyItem, document: &document{file: d.file, found: d.found, above: beginLine, text: d.text[begin:end]}})
	}
	for row := range bytes.Lines(d.text) {
		content := bytes.TrimLeft(row, " ")
		indent := len(row) - len(content)
		content = bytes.TrimRight(content, " \t\r\n")
		isEmpty := len(content) == 0 || content[0] == '#'
		isItem := bytes.Equal(content, []byte("-")) || bytes.HasPrefix(content, []byte("- "))
		if state == first && !isEmpty {
			if !isItem {
				return nil, nil
			}
			state, column, begin, beginLine = within, indent, offset, line
		} else if state == within && !isEmpty && indent <= column {
			switch {
			case indent == column && isItem:
				flush(offset)
				begin, beginLine = offset, line
			case indent == 0:
				flush(offset)
				state = after
			default:
				return nil, nil
			}
		}
		if state == before || state == after {
			around = append(around, row...)
		}
		if state == before && indent == 0 && bytes.Equal(content, []byte("items:")) {
			state = first
		}
		offset += len(row)
		line++
	}
	if state == within {
		flush(offset)
	}
	if len(items) > mostItems {
		return nil, nil
	}
	return around, items
}

// parseItems converts the items to JSON. It returns false if an item is not valid YAML on its own, for example because it
// refers to another item's anchor.
func parseItems(items []*fragment) bool {
	for _, item := range items {
		if len(item.document.text) > largestDocument {
			return false
		}
		text, err := parse(item.document.text)
		if err != nil {
			return false
		}
		if item.path != "" { // a sequence of one item
			text = bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("[")), []byte("]"))
		}
		item.json = text
	}
	return true
}

// readList reads a list item by item. It returns false if the document is not a list or cannot be divided.
func (m *manifests) readList(d *document) bool {
	around, items := d.cutList()
	if len(items) == 0 || len(around) > largestDocument || !parseItems(items) {
		return false
	}
	text, err := parse(around)
	if err != nil {
		return false
	}
	var list head
	if err := casejson.UnmarshalCaseSensitivePreserveInts(text, &list); err != nil || !isList(list.Kind) {
		return false
	}
	version, err := schema.ParseGroupVersion(list.APIVersion)
	if err != nil || version.Empty() {
		return false
	}
	kind := itemKind(list.Kind, version)
	for _, item := range items {
		if len(m.problems) > manyFaults {
			break
		}
		m.readObject(item, kind)
	}
	return true
}
