package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mismatch returns the path of the first value that does not fit a type, and says so in words of YAML: decoders name Go
// types, and not the item of a list. text is empty if every value fits.
func mismatch(value any, t reflect.Type, path string) (at, text string) {
	if value == nil { // null fits any type
		return "", ""
	}
	if t.Kind() == reflect.Pointer {
		return mismatch(value, t.Elem(), path)
	}
	unfit := func(want string) (string, string) {
		return path, fmt.Sprintf("is %s: want %s", kindOfValue(value), want)
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		encoded, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(encoded, reflect.New(t).Interface())
		}
		if err != nil {
			return unfit(ownForm(t))
		}
		return "", ""
	}
	switch t.Kind() {
	case reflect.Struct:
		members, ok := value.(map[string]any)
		if !ok {
			return unfit("a mapping")
		}
		return mismatchOfMember(members, t, path)
	case reflect.Map:
		members, ok := value.(map[string]any)
		if !ok {
			return unfit("a mapping")
		}
		for _, key := range slices.Sorted(maps.Keys(members)) {
			if at, text := mismatch(members[key], t.Elem(), join(path, key)); text != "" {
				return at, text
			}
		}
	case reflect.Slice:
		items, ok := value.([]any)
		if !ok && t.Elem().Kind() != reflect.Uint8 { // bytes are text in base64
			return unfit("a list")
		}
		for i, item := range items {
			if at, text := mismatch(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); text != "" {
				return at, text
			}
		}
	case reflect.String:
		if _, ok := value.(string); !ok {
			return unfit("text")
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			return unfit("true or false")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		number, ok := value.(json.Number)
		if _, err := strconv.ParseInt(number.String(), 10, t.Bits()); !ok || err != nil {
			return unfit("a whole number" + smaller(err))
		}
	}
	return "", ""
}

// mismatchOfMember looks for the fault in the members of a mapping that the type names.
func mismatchOfMember(members map[string]any, t reflect.Type, path string) (at, text string) {
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" && (t.Field(i).Anonymous || options == "inline") {
			at, text = mismatch(members, t.Field(i).Type, path)
		} else if value, there := members[name]; there && name != "" {
			at, text = mismatch(value, t.Field(i).Type, join(path, name))
		}
		if text != "" {
			return at, text
		}
	}
	return "", ""
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// smaller explains why a whole number does not fit.
func smaller(err error) string {
	if errors.Is(err, strconv.ErrRange) {
		return " that is smaller"
	}
	return ""
}

// ownForm describes a type that has a text form of its own.
func ownForm(t reflect.Type) string {
	switch t.Name() {
	case "IntOrString":
		return "a whole number or text"
	case "Quantity":
		return "a quantity such as 500m or 2Gi"
	case "Time", "MicroTime":
		return "a time such as 2026-01-02T15:04:05Z"
	case "Duration":
		return "a duration such as 30s"
	}
	return "another form"
}

func kindOfValue(value any) string {
	switch value := value.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case bool:
		return strconv.FormatBool(value)
	case json.Number:
		return value.String()
	case string:
		if len(value) <= 40 {
			return "the text " + strconv.Quote(value)
		}
	}
	return "text"
}

var quoted = regexp.MustCompile(`^(unknown|duplicate) field "(.*)"$`)

// strictFault returns the fault of an "unknown field …" or "duplicate field …" error, with its place.
func (f *fragment) strictFault(object string, err error) *InputError {
	if match := quoted.FindStringSubmatch(err.Error()); match != nil {
		return f.fault(object, match[2], match[1]+" field")
	}
	return f.fault(object, "", err.Error())
}

// typeFault returns the fault of a value of the wrong type, with its place.
func (f *fragment) typeFault(object string, t reflect.Type) *InputError {
	decoder := json.NewDecoder(bytes.NewReader(f.json))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) == nil {
		if path, text := mismatch(value, t, ""); text != "" {
			return f.fault(object, path, text)
		}
	}
	return f.fault(object, "", "a value is not of the type that the API wants")
}
