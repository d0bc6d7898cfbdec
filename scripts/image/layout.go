package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"synclab/bench/lab/upstream"
)

// entry is one file of a layer.
type entry struct {
	*tar.Header
	text []byte
}

// layer is a set of files. Its tar has them by name, so that a folder comes before its files.
type layer []entry

// file is a regular file that is added to the image.
type file struct {
	name string // without the first slash
	text []byte
	mode int64
	link string // where a symbolic link leads to; empty: no link
	// contains names the software in a file for the SBOM; empty: it is listed by its Go modules, or not at all.
	contains, version string
}

// layerOf makes a layer of files, and of the folders that a Debian root may lack.
func layerOf(files []file) layer {
	var all layer
	folders := map[string]bool{"usr": true, "usr/local": true}
	for _, f := range files {
		for dir := filepath.Dir(f.name); !folders[dir] && dir != "."; dir = filepath.Dir(dir) {
			folders[dir] = true
			all = append(all, entry{&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil})
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.text))}
		if f.link != "" {
			header = &tar.Header{Typeflag: tar.TypeSymlink, Name: f.name, Linkname: f.link, Mode: 0o777}
		}
		all = append(all, entry{header, f.text})
	}
	return all
}

// write writes the layer as a tar. Files without a time get epoch.
func (l layer) write(w io.Writer, epoch time.Time) error {
	slices.SortFunc(l, func(a, b entry) int { return cmp.Compare(a.Name, b.Name) })
	out := tar.NewWriter(w)
	for _, e := range l {
		if e.ModTime.IsZero() {
			e.ModTime = epoch
		}
		if err := out.WriteHeader(e.Header); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		if _, err := out.Write(e.text); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	return out.Close()
}

// The JSON of the OCI image specification, as far as the image uses it.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Platform    map[string]string `json:"platform,omitempty"`
	}
	manifest struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Config        descriptor        `json:"config"`
		Layers        []descriptor      `json:"layers"`
		Annotations   map[string]string `json:"annotations"`
	}
	imageConfig struct {
		Created      time.Time      `json:"created"`
		Architecture string         `json:"architecture"`
		OS           string         `json:"os"`
		Config       containerStart `json:"config"`
		RootFS       rootFS         `json:"rootfs"`
	}
	containerStart struct {
		Env        []string
		Entrypoint []string
		Labels     map[string]string
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	index struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}
)

const (
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
)

func labels(o options) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "synclab",
		"org.opencontainers.image.description": "Benchmarks and fault-tests Kubernetes Service proxies",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.revision":    o.commit,
		"org.opencontainers.image.created":     o.epoch.Format(time.RFC3339),
		"synclab.kube-proxy":                   upstream.Pinned,
		"synclab.kernel":                       o.kernel,
	}
}

// writeLayout writes the image, and returns the digest of its manifest.
func writeLayout(o options, debian debianRoot, more ...layer) (string, error) {
	if err := os.RemoveAll(o.out); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(o.out, "blobs/sha256"), 0o755); err != nil {
		return "", err
	}
	config := imageConfig{Created: o.epoch, Architecture: platform, OS: "linux", RootFS: rootFS{Type: "layers"}, Config: containerStart{
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp"},
		Entrypoint: []string{"/usr/local/bin/synclab"}, Labels: labels(o),
	}}
	var layers []descriptor
	for _, l := range append([]layer{debian.layer}, more...) {
		var plain, packed bytes.Buffer
		if err := l.write(&plain, o.epoch); err != nil {
			return "", err
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digestOf(plain.Bytes()))
		zip := gzip.NewWriter(&packed)
		_, err := zip.Write(plain.Bytes())
		if err := closeAll(err, zip); err != nil {
			return "", err
		}
		blob, err := o.blob(mediaLayer, packed.Bytes())
		if err != nil {
			return "", err
		}
		layers = append(layers, blob)
	}
	about, err := o.jsonBlob(mediaConfig, config)
	if err != nil {
		return "", err
	}
	top, err := o.jsonBlob(mediaManifest, manifest{SchemaVersion: 2, MediaType: mediaManifest, Config: about, Layers: layers, Annotations: labels(o)})
	if err != nil {
		return "", err
	}
	top.Annotations = map[string]string{"org.opencontainers.image.ref.name": o.commit}
	top.Platform = map[string]string{"os": "linux", "architecture": platform}
	for name, content := range map[string]any{"oci-layout": map[string]string{"imageLayoutVersion": "1.0.0"}, "index.json": index{SchemaVersion: 2, MediaType: mediaIndex, Manifests: []descriptor{top}}} {
		text, err := json.Marshal(content)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(o.out, name), append(text, '\n'), 0o644); err != nil {
			return "", err
		}
	}
	return top.Digest, nil
}

func digestOf(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }

// blob writes content under its digest.
func (o options) blob(mediaType string, text []byte) (descriptor, error) {
	digest := digestOf(text)
	path := filepath.Join(o.out, "blobs/sha256", digest[len("sha256:"):])
	return descriptor{MediaType: mediaType, Digest: digest, Size: len(text)}, os.WriteFile(path, text, 0o644)
}

func (o options) jsonBlob(mediaType string, content any) (descriptor, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return descriptor{}, err
	}
	return o.blob(mediaType, text)
}
