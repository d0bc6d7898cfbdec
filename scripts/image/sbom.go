package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// software is one line of the SBOM.
type software struct {
	name, version string
	purl          string // package URL
}

// installed reads the packages of dpkg's status file.
func installed(status []byte) ([]software, error) {
	var all []software
	for paragraph := range strings.SplitSeq(string(status), "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(paragraph) {
			if name, value, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") {
				fields[name] = strings.TrimSpace(value)
			}
		}
		if strings.TrimSpace(paragraph) == "" || !strings.HasSuffix(fields["Status"], " installed") {
			continue
		}
		if fields["Package"] == "" || fields["Version"] == "" {
			return nil, fmt.Errorf("var/lib/dpkg/status: a paragraph without name or version:\n%s", paragraph)
		}
		version := strings.NewReplacer("+", "%2B", ":", "%3A", "~", "~").Replace(fields["Version"])
		all = append(all, software{fields["Package"], fields["Version"], fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", fields["Package"], version, fields["Architecture"])})
	}
	if len(all) == 0 {
		return nil, errors.New("var/lib/dpkg/status: no installed package")
	}
	return all, nil
}

// modules reads the Go modules of a program, as go version -m does.
func modules(f file) ([]software, error) {
	about, err := buildinfo.Read(bytes.NewReader(f.text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	golang := func(name, version string) software {
		return software{name, version, "pkg:golang/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")}
	}
	all := []software{golang("stdlib", strings.TrimPrefix(about.GoVersion, "go"))}
	deps := about.Deps
	if released := about.Main.Version; released != "" && released != "(devel)" {
		deps = append(deps, &about.Main)
	}
	for _, m := range deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, golang(m.Path, m.Version))
	}
	return all, nil
}

// The JSON of SPDX 2.3, as far as the SBOM uses it.
type (
	spdxPackage struct {
		ID           string    `json:"SPDXID"`
		Name         string    `json:"name"`
		Version      string    `json:"versionInfo,omitempty"`
		Location     string    `json:"downloadLocation"`
		Analyzed     bool      `json:"filesAnalyzed"`
		Concluded    string    `json:"licenseConcluded"`
		Declared     string    `json:"licenseDeclared"`
		Copyright    string    `json:"copyrightText"`
		ExternalRefs []spdxRef `json:"externalRefs,omitempty"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelation struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
	spdxDocument struct {
		Version   string         `json:"spdxVersion"`
		License   string         `json:"dataLicense"`
		ID        string         `json:"SPDXID"`
		Name      string         `json:"name"`
		Namespace string         `json:"documentNamespace"`
		Creation  map[string]any `json:"creationInfo"`
		Packages  []spdxPackage  `json:"packages"`
		Relations []spdxRelation `json:"relationships"`
	}
)

// writeSBOM lists Debian's packages and what the files contain.
func writeSBOM(o options, packages []software, files []file) ([]byte, error) {
	const none, document, image = "NOASSERTION", "SPDXRef-DOCUMENT", "SPDXRef-image"
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: document, Name: "synclab-" + o.commit,
		Creation:  map[string]any{"created": o.epoch.Format(time.RFC3339), "creators": []string{"Tool: synclab-image"}},
		Packages:  []spdxPackage{{ID: image, Name: "synclab", Version: o.commit, Location: none, Concluded: none, Declared: "Apache-2.0", Copyright: none}},
		Relations: []spdxRelation{{document, "DESCRIBES", image}},
	}
	all := slices.Clone(packages)
	for _, f := range files {
		switch {
		case f.contains != "":
			all = append(all, software{f.contains, f.version, "pkg:generic/" + f.contains + "@" + f.version})
		case path.Ext(f.name) != ".json" && f.link == "":
			found, err := modules(f)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	slices.SortFunc(all, func(a, b software) int { return cmp.Compare(a.purl, b.purl) })
	for i, s := range slices.Compact(all) {
		id := fmt.Sprintf("SPDXRef-%d", i)
		doc.Packages = append(doc.Packages, spdxPackage{ID: id, Name: s.name, Version: s.version, Location: none, Concluded: none, Declared: none, Copyright: none,
			ExternalRefs: []spdxRef{{"PACKAGE-MANAGER", "purl", s.purl}}})
		doc.Relations = append(doc.Relations, spdxRelation{image, "CONTAINS", id})
	}
	text, err := json.Marshal(doc.Packages)
	if err != nil {
		return nil, err
	}
	doc.Namespace = "urn:synclab:sbom:" + o.commit + ":" + digestOf(text) // each content has its own
	text, err = json.MarshalIndent(doc, "", " ")
	return append(text, '\n'), err
}
