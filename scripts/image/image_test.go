package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const status = `Package: base-files
Status: install ok installed
Version: 12.4+deb12u11
Architecture: amd64

Package: gone
Status: deinstall ok config-files
Version: 1
Architecture: all
`

// writeTar writes a root as a tar, with what Debian leaves behind and with times of today.
func writeTar(t *testing.T, names ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.tar")
	var text bytes.Buffer
	out := tar.NewWriter(&text)
	for _, name := range names {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: "./" + name, Mode: 0o644, ModTime: time.Now(), Size: int64(len(status))}
		if strings.HasSuffix(name, "/") {
			header.Typeflag, header.Mode, header.Size = tar.TypeDir, 0o755, 0
		}
		if err := out.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if header.Size > 0 {
			_, _ = io.WriteString(out, status)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readJSON decodes a file of an image, strictly.
func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func blobPath(image string, d descriptor) string {
	return filepath.Join(image, "blobs/sha256", strings.TrimPrefix(d.Digest, "sha256:"))
}

// openImage reads an image in OCI layout, and checks that all blobs have their digests.
func openImage(t *testing.T, image string) (manifest, imageConfig) {
	t.Helper()
	var top index
	readJSON(t, filepath.Join(image, "index.json"), &top)
	var m manifest
	readJSON(t, blobPath(image, top.Manifests[0]), &m)
	for _, d := range append([]descriptor{top.Manifests[0], m.Config}, m.Layers...) {
		text, err := os.ReadFile(blobPath(image, d))
		if err != nil || digestOf(text) != d.Digest || len(text) != d.Size {
			t.Errorf("%s of %d bytes: %v, it has %d", d.Digest, d.Size, err, len(text))
		}
	}
	var c imageConfig
	readJSON(t, blobPath(image, m.Config), &c)
	return m, c
}

// eachFile calls do with every file of a layer.
func eachFile(t *testing.T, image string, d descriptor, do func(*tar.Header, io.Reader)) {
	t.Helper()
	f, err := os.Open(blobPath(image, d))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(plain)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		do(header, files)
	}
}

// The same commit with the same packages gives the same image, whatever the order and the times of the files, and
// without what only one build has.
func TestSameBytes(t *testing.T) {
	o := options{commit: "0123456789ab", epoch: time.Unix(1700000000, 0).UTC(), kernel: "6.12"}
	own := []file{{name: "usr/local/bin/tool", text: []byte("#!/bin/sh\n"), mode: 0o755}, {name: "usr/local/bin/link", link: "tool"}}
	kept := []string{"etc/", "etc/passwd", "usr/", "var/lib/dpkg/status"}
	left := []string{"dev/null", "etc/machine-id", "etc/apt/sources.list", "var/log/dpkg.log", "var/cache/ldconfig/aux-cache", "var/lib/dpkg/status-old"}
	var digests []string
	for i, names := range [][]string{slices.Concat(kept, left), kept} {
		if i == 1 {
			slices.Reverse(names)
			slices.Reverse(own)
		}
		root, err := readRoot(writeTar(t, names...), o.epoch)
		if err != nil {
			t.Fatal(err)
		}
		o.out = filepath.Join(t.TempDir(), "image")
		digest, err := writeLayout(o, root, layerOf(own))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("two images of the same: %q", digests)
	}
	m, c := openImage(t, o.out)
	if c.Config.Labels["org.opencontainers.image.revision"] != o.commit || len(c.RootFS.DiffIDs) != 2 {
		t.Errorf("configuration %+v", c)
	}
	var names []string
	for _, d := range m.Layers {
		eachFile(t, o.out, d, func(h *tar.Header, _ io.Reader) {
			names = append(names, h.Name)
			if h.ModTime.After(o.epoch) {
				t.Errorf("%s is of %v", h.Name, h.ModTime)
			}
		})
	}
	want := []string{"etc", "etc/passwd", "usr", "var/lib/dpkg/status", "usr/local/bin", "usr/local/bin/link", "usr/local/bin/tool"}
	if !slices.Equal(names, want) {
		t.Errorf("files %q; want %q", names, want)
	}
}

func TestRootRefuses(t *testing.T) {
	if _, err := readRoot(writeTar(t, "etc/passwd"), time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), "no root of Debian") {
		t.Errorf("a tar without dpkg's status: %v", err)
	}
}

// The SBOM has the installed packages and the Go modules of programs, each once.
func TestSBOM(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	packages, err := installed([]byte(status))
	if err != nil {
		t.Fatal(err)
	}
	sbom, err := writeSBOM(options{commit: "c", epoch: time.Unix(0, 0).UTC()}, packages, []file{{name: "a", text: text}, {name: "b", text: text}, {name: "linux", contains: "linux", version: "6.12.1"}})
	if err != nil {
		t.Fatal(err)
	}
	var doc spdxDocument
	if err := json.Unmarshal(sbom, &doc); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, p := range doc.Packages {
		count[p.Name]++
	}
	for name, want := range map[string]int{"base-files": 1, "gone": 0, "stdlib": 1, "golang.org/x/sys": 1, "linux": 1} {
		if count[name] != want {
			t.Errorf("%s is listed %d times, want %d", name, count[name], want)
		}
	}
	if _, err := writeSBOM(options{}, packages, []file{{name: "script", text: []byte("#!/bin/sh\n")}}); err == nil {
		t.Error("a program of unknown content is listed as nothing")
	}
}
