package manifests

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const plumService = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"plum","uid":"a"},"spec":{"clusterIP":"10.96.3.1","ports":[{"port":80}]}}`

// besides reads a folder with a Service and another file. It returns the lines on what was left out, and the error.
func besides(t *testing.T, name, text string) (left string, err error) {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"svc.json": plumService, name: text} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return readLeft(dir)
}

func readLeft(path string) (left string, err error) {
	opts := ReadOptions{LeftOut: func(l LeftOut) { left += strings.ReplaceAll(l.String(), path+"/", "") + "\n" }}
	_, err = ReadObjects([]string{path}, nil, opts)
	return left, err
}

// A file that is no object of a wanted kind does not make the rest of its folder unreadable, whatever its size and types.
func TestReadObjectsBesideOtherFiles(t *testing.T) {
	defer func(before int) { largestDocument = before }(largestDocument)
	largestDocument = 1 << 10
	large := strings.Repeat("x", largestDocument)
	const largeLine = "document: more than 0 MiB, and of no kind that a Service proxy reads"
	for name, c := range map[string]struct{ text, left, err string }{
		"rules.json":    {text: `{"groups":[{"name":"` + large + `"}]}`, left: "rules.json:1: " + largeLine},
		"rules.yaml":    {text: "# rules\ngroups:\n- name: " + large + "\n", left: "rules.yaml:1: " + largeLine},
		"tree.json":     {text: `{"spec":{"kind":"Service","a":"` + large + `"},"kind":"Tree"}`, left: "tree.json:1: " + largeLine},
		"tree.yaml":     {text: "kind: Tree\nspec: {kind: Service, a: " + large + "}\n", left: "tree.yaml:1: " + largeLine},
		"pear.yaml":     {text: "kind: Service\nspec: {a: " + large + "}\n", err: "pear.yaml:1: a document of more than 0 MiB"},
		"cut.json":      {text: `{"items": [{"kind": "Service", "a": "` + large, err: "cut.json:1: a document of more than 0 MiB"},
		"services.json": {text: `{"metadata": {"name": "` + large, err: "services.json:1: a document of more than 0 MiB"},
		"a.json":        {text: `{"metadata":"x"}`, left: "a.json:1: document: not a Kubernetes object: metadata is of the wrong type"},
		"b.json":        {text: `{"kind":5}`, left: "b.json:1: document: not a Kubernetes object: kind is of the wrong type"},
		"c.json":        {text: `{"items":{}}`, left: "c.json:1: document: not a Kubernetes object: apiVersion and kind are missing"},
		"d.json":        {text: `{"kind":"Tree","metadata":"x"}`, left: "d.json:1: tree: not a Kubernetes object: metadata is of the wrong type"},
		"e.json":        {text: `{"apiVersion":"v1","kind":"TreeList","items":{}}`, left: "e.json:1: treelist: not a Kubernetes object: items is of the wrong type"},
		"f.json":        {text: `{"apiVersion":"v1","kind":"Service","metadata":"x"}`, err: `f.json:1: metadata: is the text "x": want a mapping`},
		"g.json":        {text: `{"apiVersion":"v1","kind":"ServiceList","items":{}}`, err: "g.json:1: items: not a list"},
		"h.json":        {text: `{"kind":"Tree"}`, left: "h.json:1: document: not a Kubernetes object: apiVersion is missing"},
		"i.json":        {text: "error: no server", left: "i.json:1: document: kubectl failed: its error message instead of objects"},
	} {
		left, err := besides(t, name, c.text)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) || strings.TrimSpace(left) != c.left {
			t.Errorf("%s: left out %q, error %v; want %q, %q", name, left, err, c.left, c.err)
		}
	}
}

// A dump may have custom resources whose fields have the names of a list's.
func TestReadObjectsForeignHead(t *testing.T) {
	left := ""
	readText(t, ReadOptions{LeftOut: func(l LeftOut) { left += l.String() + "\n" }}, `{"apiVersion":"v1","kind":"List","items":[
{"apiVersion":"example.com/v1","kind":"Menu","metadata":{"name":"m","uid":"b"},"items":{"a":"b"}},
{"apiVersion":"example.com/v1","kind":"Tree","metadata":"m"},
`+plumService+`]}`)
	const want = "stdin:2: menu m: does not concern a Service proxy\nstdin:3: tree: not a Kubernetes object: metadata is of the wrong type\n"
	if left != want {
		t.Errorf("left out\n%s want\n%s", left, want)
	}
}

// A configuration of kube-proxy is no object of the cluster; a script that names it is no configuration.
func TestReadObjectsSettings(t *testing.T) {
	for text, want := range map[string]string{
		`{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration"}`:                       "a.json:1: kubeproxyconfiguration: kube-proxy's settings: give them with --proxy-config\n",
		`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"mode: ipvs\nkind: KubeProxyConfiguration\n","b":""}}`: "a.json:1: configmap: kube-proxy's settings: give them with --proxy-config\n",
		`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"grep KubeProxyConfiguration"}}`:                       "a.json:1: configmap: does not concern a Service proxy\n",
	} {
		if left, err := besides(t, "a.json", text); err != nil || left != want {
			t.Errorf("%s: left out %q, %v; want %q", text, left, err, want)
		}
	}
}

// Messages name what is missing, and quote kubectl.
func TestReadObjectsKindless(t *testing.T) {
	for text, want := range map[string]string{
		"kind: Service":           "stdin:1: service: not a Kubernetes object: apiVersion is missing",
		"apiVersion: v1":          "stdin:1: not a Kubernetes object: kind is missing",
		"a: b":                    "stdin:1: not a Kubernetes object: apiVersion and kind are missing",
		"error: no configuration": `stdin:1: kubectl failed, its message is in place of objects: "error: no configuration"`,
		"\nWarning: old\nError from server (Forbidden): services is forbidden: a: b": `stdin:3: kubectl failed, its message is in place of objects: "Error from server (Forbidden): services is forbidden: a: b"`,
		"E0102 1 memcache.go:1] \"a\"\nUnable to connect to the server: dial: b":     `"Unable to connect to the server: dial: b"`,
	} {
		if _, err := ReadObjects([]string{"-"}, strings.NewReader(text), ReadOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

// The name of a file stands for the kind only in what a program wrote: a forgotten kind in a manifest is a mistake.
func TestReadObjectsKindOfManifest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "services.yaml")
	read := func(text string) error {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readLeft(path)
		return err
	}
	const object = "metadata: {name: plum}\nspec: {ports: [{port: 80}]}\n"
	if err := read(object); err == nil || !strings.Contains(err.Error(), "services.yaml:1: not a Kubernetes object: apiVersion and kind are missing") {
		t.Errorf("a manifest: %v", err)
	}
	for _, text := range []string{strings.Replace(object, "}", ", uid: a}", 1), "items:\n- " + strings.ReplaceAll(object, "\n", "\n  ")} {
		if err := read(text); err != nil {
			t.Errorf("%s%v", text, err)
		}
	}
}

// Files of a folder that cannot be read are left out, in a line for each reason.
func TestReadObjectsUnreadable(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.WriteFile(in("svc.json"), []byte(plumService), 0o600),
		os.Symlink("gone", in("a.yaml")), os.Symlink("gone", in("b.yaml")), os.Symlink("loop.yaml", in("loop.yaml")),
		unix.Mkfifo(in("pipe.yaml"), 0o600), os.Symlink(t.TempDir(), in("folder.yaml")),
		os.WriteFile(in("cut.json.gz"), []byte("\x1f\x8b\x08"), 0o600), os.WriteFile(in("gzip.yaml"), []byte("\x1f\x8b: not packed"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	want := "a.yaml: file and 1 more: no such file or directory\ncut.json.gz: file: unexpected EOF\nfolder.yaml: file and 1 more: not a regular file\ngzip.yaml: file: gzip: invalid header\nloop.yaml: file: too many levels of symbolic links\n"
	if os.Geteuid() != 0 { // root may read all
		if err := errors.Join(os.Mkdir(in("shut"), 0), os.WriteFile(in("own.yaml"), nil, 0)); err != nil {
			t.Fatal(err)
		}
		want += "own.yaml: file and 1 more: permission denied\n"
	}
	if left, err := readLeft(dir); err != nil || left != want {
		t.Errorf("left out\n%serror %v; want\n%s", left, err, want)
	}
}
