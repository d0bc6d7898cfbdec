package manifests

import (
	"fmt"
	"strings"
)

// LeftOut is an object of the input that is not used, and how many more there are of its kind for the same reason.
type LeftOut struct {
	File   string
	Line   int    // 0: the file as a whole
	Object string // "configmap ngx-conf"; "document" if it has no kind; "file" if it cannot be read
	Reason string
	More   int
}

func (l LeftOut) String() string {
	object := l.Object
	if l.More > 0 {
		object += fmt.Sprintf(" and %d more", l.More)
	}
	return located(l.File, l.Line, object, l.Reason)
}

// mostLeftOut limits the lines of one reason: a must-gather folder has 200 kinds, and a dump may have 3,000 objects of one
// fault.
const mostLeftOut = 10

// omissions counts the objects that are left out, in a few lines.
type omissions struct {
	lines    []*LeftOut
	byKind   map[[2]string]*LeftOut // by reason and kind
	byReason map[string]int         // lines
	unusable int
}

// add counts an object. The line of the place is found only for the first of a kind, because that takes time.
func (o *omissions) add(at *fragment, kind, object, reason string) {
	if line := o.count(kind, reason); line != nil {
		line.File, line.Line, line.Object = at.document.file, at.line(""), object
	}
}

// addFile counts a file that cannot be read.
func (o *omissions) addFile(file, reason string) {
	if line := o.count("file", reason); line != nil {
		line.File, line.Object = file, "file"
	}
}

// count counts an object, and returns the line to complete if it is the first of its kind.
func (o *omissions) count(kind, reason string) *LeftOut {
	if o.byKind == nil {
		o.byKind, o.byReason = map[[2]string]*LeftOut{}, map[string]int{}
	}
	key := [2]string{reason, kind}
	if o.byKind[key] == nil && o.byReason[reason] >= mostLeftOut {
		key[1] = "" // all further kinds
	}
	if line := o.byKind[key]; line != nil {
		line.More++
		return nil
	}
	o.byReason[reason]++
	o.byKind[key] = &LeftOut{Reason: reason}
	o.lines = append(o.lines, o.byKind[key])
	return o.byKind[key]
}

// addUnusable names an object of an API server that cannot be used.
func (o *omissions) addUnusable(at *fragment, fault *InputError, more int) {
	reason := fault.Err.Error()
	if fault.Field != "" {
		reason = fault.Field + ": " + reason
	}
	reason, _, _ = strings.Cut(reason, "(e.g. ") // the API's examples and patterns
	reason = strings.TrimRight(reason, ", ")
	if more > 0 {
		reason += fmt.Sprintf(" (and %d more)", more)
	}
	if o.unusable++; o.unusable > maxFaults {
		o.add(at, "", fault.Object, "not usable either")
		return
	}
	o.lines = append(o.lines, &LeftOut{File: fault.File, Line: fault.Line, Object: fault.Object, Reason: reason})
}

// foundKinds says what the input has: "3 EndpointSlices, 2 ConfigMaps".
type foundKinds struct {
	order  []string
	counts map[string]int
}

func (k *foundKinds) add(kind string) {
	if k.counts == nil {
		k.counts = map[string]int{}
	}
	if k.counts[kind]++; k.counts[kind] == 1 {
		k.order = append(k.order, kind)
	}
}

func (k *foundKinds) String() string {
	var parts []string
	for i, kind := range k.order {
		if i == 5 {
			parts = append(parts, "others")
			break
		}
		if n := k.counts[kind]; n != 1 && !strings.HasSuffix(kind, "s") {
			kind += "s"
		}
		parts = append(parts, fmt.Sprintf("%d %s", k.counts[k.order[i]], kind))
	}
	return strings.Join(parts, ", ")
}
