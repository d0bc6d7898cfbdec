package manifests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"synclab/sim"
)

// isWanted reports whether objects of a kind, or the objects in a list of a kind, may affect a proxy.
func isWanted(kind string) bool {
	kind, isOfList := strings.CutSuffix(kind, "List")
	return kind == "" && isOfList || slices.Contains(wantedNames, kind)
}

var wantedNames = func() (names []string) {
	for kind := range maps.Keys(wantedKinds) {
		names = append(names, kind.Kind)
	}
	return names
}()

// whyUnwanted returns why an object of no wanted kind is left out.
func (f *fragment) whyUnwanted(kind string) string {
	var texts struct {
		Data map[string]string `json:"data"`
	}
	if kind == "ConfigMap" && bytes.Contains(f.json, []byte("KubeProxyConfiguration")) {
		_ = json.Unmarshal(f.json, &texts) // no texts, no configuration
	}
	if kind == "KubeProxyConfiguration" || slices.ContainsFunc(slices.Collect(maps.Values(texts.Data)), sim.IsProxyConfig) {
		return "kube-proxy's settings: give them with --proxy-config"
	}
	return "does not concern a Service proxy"
}

// topKind matches the kind of a YAML document in block style; anyKind matches a wanted one, of any object.
var (
	topKind = regexp.MustCompile(`(?m)^kind: *["']?(\w+)`)
	anyKind = regexp.MustCompile(`\bkind["']?: *["']?(?:List|(?:` + strings.Join(wantedNames, "|") + `)(?:List)?)\b`)
)

// isForeign reports whether a document, which is too large to parse, is of no wanted kind. Of JSON only the kind is decoded.
func (d *document) isForeign() bool {
	var head struct {
		Kind any `json:"kind"`
	}
	kind := ""
	if json.Unmarshal(d.text, &head) == nil {
		kind, _ = head.Kind.(string)
	} else if match := topKind.FindSubmatch(d.text); match != nil {
		kind = string(match[1])
	}
	if kind != "" {
		return !isWanted(kind)
	}
	return d.found && !anyKind.Match(d.text) && kindOfFile(d.file, false).Empty()
}

// refuseLarge refuses a document that is too large to parse, or leaves it out if it is of no wanted kind.
func (m *manifests) refuseLarge(d *document) {
	at := &fragment{document: &document{file: d.file, above: d.above}}
	if d.isForeign() {
		m.left.add(at, "", "document", fmt.Sprintf("more than %d MiB, and of no kind that a Service proxy reads", largestDocument>>20))
		return
	}
	m.refuse(at, at.fault("", "", fmt.Sprintf("a document of more than %d MiB that cannot be read item by item: "+
		"write a list in block style as kubectl does, or as JSON, or as several documents", largestDocument>>20)))
}

// refuseHead refuses an object with a field of the wrong type among those that decide how to read it. In a folder it may
// be no object at all, and custom resources have fields of their own.
func (m *manifests) refuseHead(at *fragment, kind string, fault *InputError) {
	if kind == "" && at.document.found || kind != "" && !isWanted(kind) {
		m.left.add(at, kind, cmp.Or(strings.ToLower(kind), "document"), fmt.Sprintf("not a Kubernetes object: %s is of the wrong type", fault.Field))
		return
	}
	m.refuse(at, fault)
}

// refuseKindless refuses what is no Kubernetes object. A folder may hold other files.
func (m *manifests) refuseKindless(at *fragment, h head) {
	missing := "apiVersion and kind are"
	switch {
	case h.APIVersion != "":
		missing = "kind is"
	case h.Kind != "":
		missing = "apiVersion is"
	}
	reason := "not a Kubernetes object: " + missing + " missing"
	if at.document.found && !slices.Contains(wantedNames, h.Kind) {
		m.left.add(at, "", "document", reason)
		return
	}
	m.refuse(at, at.fault(h.object(), "", reason))
}

// kubectlError matches the message of a failed kubectl, after rows of its log.
var kubectlError = regexp.MustCompile(`\A\s*(?:E\d{4} .*\n)*((?:error: |Error from server|Unable to connect to |The connection to the server ).*)`)

// refuseError refuses the message of a failed kubectl, or leaves it out of a folder. It reports whether the text is one.
func (m *manifests) refuseError(d *document) bool {
	match := kubectlError.FindSubmatch(d.text)
	if match == nil {
		return false
	}
	at := &fragment{document: d}
	if d.found {
		m.left.add(at, "", "document", "kubectl failed: its error message instead of objects")
		return true
	}
	m.refuse(at, at.fault("", "", fmt.Sprintf("kubectl failed, its message is in place of objects: %.300q", strings.TrimSpace(string(match[1])))))
	return true
}

// inferKind returns the kind of an object without one, by the file's name. Only programs write such objects: a forgotten
// kind in a manifest is a mistake.
func (at *fragment) inferKind(h head) schema.GroupVersionKind {
	items, _ := h.items()
	if isList := len(items) > 0; isList || h.Metadata.Name != "" && (at.document.found || hasValue(h.Metadata.UID)) {
		return kindOfFile(at.document.file, isList)
	}
	return schema.GroupVersionKind{}
}

// kindOfFile returns the kind of objects without one, from the names that support bundles and Sonobuoy give to their
// files: services/default.json, core_v1_services.json.
func kindOfFile(file string, list bool) schema.GroupVersionKind {
	folder, base := path.Split(strings.ToLower(strings.ReplaceAll(file, ":", "/")))
	base = strings.TrimSuffix(base, ".gz")
	base = strings.TrimSuffix(base, path.Ext(base))
	names := []string{path.Base(folder), base}
	if at := strings.LastIndexByte(base, '_'); at >= 0 { // no namespace has such a name
		names = []string{base[at+1:], path.Base(folder)}
	}
	for _, name := range names {
		for kind, version := range wantedKinds {
			if version == "" || strings.TrimSuffix(strings.ToLower(kind.Kind), "s")+"s" != name {
				continue
			}
			if list {
				kind.Kind += "List"
			}
			return kind.WithVersion(version)
		}
	}
	return schema.GroupVersionKind{}
}
