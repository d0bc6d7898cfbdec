package manifests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A FIFO in a folder does not block the reader, and an endless input is refused before it fills the memory.
func TestReadObjectsRefusesWhatIsNoFile(t *testing.T) {
	folder := func(make func(path string) error) string {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, "objects.yaml")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for what, make := range map[string]func(path string) error{
		"FIFO":             func(path string) error { return unix.Mkfifo(path, 0o600) },
		"link to a device": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		dir := folder(make)
		if _, err := ReadObjects([]string{dir}, nil, ReadOptions{Strict: true}); err == nil || !strings.Contains(err.Error(), "objects.yaml: not a regular file") {
			t.Errorf("%s, strict: %v", what, err)
		}
		if left, err := readLeft(dir); err == nil || !strings.Contains(err.Error(), "holds no *.yaml, *.yml or *.json that can be read") || left != "objects.yaml: file: not a regular file\n" {
			t.Errorf("%s alone: left out %q, %v", what, left, err)
		}
	}
	text, err := os.ReadFile("testdata/manifests/ngx.yaml")
	if err != nil {
		t.Fatal(err)
	}
	linked := folder(func(path string) error {
		file := filepath.Join(t.TempDir(), "data")
		return errors.Join(os.WriteFile(file, text, 0o600), os.Symlink(file, path))
	})
	if _, err := ReadObjects([]string{linked}, nil, ipv4Cluster); err != nil {
		t.Errorf("link to a file: %v", err)
	}
	toFolder := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(linked, toFolder); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadObjects([]string{toFolder}, nil, ipv4Cluster); err != nil {
		t.Errorf("link to a folder: %v", err)
	}

	defer func(before int64) { largestInput = before }(largestInput)
	largestInput = 1 << 20
	if _, err := ReadObjects([]string{"/dev/zero"}, nil, ReadOptions{}); err == nil || !strings.Contains(err.Error(), "/dev/zero: more than 1 MiB") {
		t.Errorf("/dev/zero: %v", err)
	}
	if _, err := ReadObjects([]string{"-"}, strings.NewReader(strings.Repeat(" ", 1<<20+1)), ReadOptions{}); err == nil || !strings.Contains(err.Error(), "stdin: more than 1 MiB") {
		t.Errorf("stdin: %v", err)
	}
	large := filepath.Join(t.TempDir(), "large.json")
	if err := errors.Join(os.WriteFile(large, text, 0o600), os.Truncate(large, 1<<20+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadObjects([]string{large}, nil, ReadOptions{}); err == nil || !strings.Contains(err.Error(), "large.json: more than 1 MiB") {
		t.Errorf("large file: %v", err)
	}
}

// gzipped packs a text.
func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The limits count unpacked bytes, the files of a folder or an archive, and the folders above a file.
func TestReadObjectsLimits(t *testing.T) {
	defer func(input, unpacked int64, files int) {
		largestInput, largestUnpacked, mostFiles = input, unpacked, files
	}(largestInput, largestUnpacked, mostFiles)
	largestInput = 1 << 20
	service, err := os.ReadFile(filepath.Join(corpus, "dump.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(about, want string, paths []string, stdin string) {
		t.Helper()
		if _, err := ReadObjects(paths, strings.NewReader(stdin), ReadOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", about, err, want)
		}
	}
	stdin := []string{"-"}
	if _, err := ReadObjects(stdin, strings.NewReader(gzipped(t, string(service))), ReadOptions{}); err != nil {
		t.Errorf("gzip on stdin: %v", err)
	}
	refused("a packed input", "stdin: more than 1 MiB", stdin, gzipped(t, strings.Repeat(" ", 1<<20+1)))
	refused("a cut input", "stdin: unexpected EOF", stdin, gzipped(t, string(service))[:200])

	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range []string{"large.log", "a.yaml", "b.yaml", "deep/" + strings.Repeat("d/", deepestFolder) + "c.yaml"} {
		text := service
		if name == "large.log" {
			text = bytes.Repeat([]byte("log\n"), 100_000)
		}
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o600}), second(w.Write(text))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	packed := gzipped(t, archive.String())
	refused("an archive", "is more than 32 folders deep", stdin, packed)
	mostFiles = 1
	refused("an archive", "b.yaml: more than 1 files", stdin, packed)
	refused("a folder", "more than 1 files", []string{filepath.Join(corpus, "same-twice")}, "")
	largestUnpacked = 100_000
	refused("an archive of large files", "stdin: more than 0 MiB when unpacked: unpack it, and name the folders", stdin, packed)
	deep := filepath.Join(append([]string{t.TempDir()}, strings.Split(strings.Repeat("d", deepestFolder+1), "")...)...)
	if err := errors.Join(os.MkdirAll(deep, 0o700), os.WriteFile(filepath.Join(deep, "a.yaml"), service, 0o600)); err != nil {
		t.Fatal(err)
	}
	mostFiles = 10
	refused("a deep folder", "is more than 32 folders deep", []string{strings.TrimSuffix(deep, strings.Repeat("/d", deepestFolder+1))}, "")
	refused("lists of lists", "more than 8 lists in each other", stdin, strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 12)+strings.Repeat("]}", 12))
	refused("a URL", "https://example.com/a.yaml is a URL: download it first", []string{"https://example.com/a.yaml"}, "")
}

func second(_ int, err error) error { return err }

// Texts that only the YAML parser of Kubernetes reads, and decoders that refuse what fits the types: their errors stay.
func TestErrorsOfOtherReaders(t *testing.T) {
	text := "a: &x {b: 1}\nc: {<<: *x, d: 2, d: 3}\n%TAG ! x\n-: -\n"
	if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), `line 2: key "d" already set in map`) {
		t.Errorf("a repeated key: %v", err)
	}
	at := &fragment{document: &document{file: "c.yaml", text: []byte("{}")}, json: []byte("{}")}
	if got, want := at.typeFault("", reflect.TypeFor[head](), errors.New("the cause")).Error(), "c.yaml:1: a value is not of the type that the API wants: the cause"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Sonobuoy and support bundles name files without kinds by their kind. A namespace may have the name of a kind.
func TestKindOfFile(t *testing.T) {
	for file, want := range map[string]string{
		"b/cluster-resources/services/orchard.json": "Service", "b/cluster-resources/services/pods.json": "Service",
		"b/cluster-resources/nodes.json": "Node", "b.tgz:b/cluster-resources/pods/services.json.gz": "Pod",
		"b/resources/ns/orchard/core_v1_services.json": "Service", "b/resources/ns/pods/core_v1_services.json": "Service",
		"b/orchard.json": "",
	} {
		if got := kindOfFile(file, false).Kind; got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}
