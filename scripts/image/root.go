package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// packages are what the lab runs, and what a maintainer script or a pod of deploy/ needs: sh, sleep, tar. Debian's set of
// essential packages would be three times as large, mostly Perl.
var packages = []string{
	"iptables", "nftables", "ipset", "conntrack",
	"base-files", "base-passwd", "coreutils", "dash", "diffutils", "dpkg", "libc-bin", "mawk", "sed", "tar",
}

// mmdebstrapHooks make /bin and /lib links before the first package, without package usrmerge, which needs Perl.
const mmdebstrapHooks = "/usr/share/mmdebstrap/hooks/merged-usr"

// makeRoot makes a Debian root as a tar, from the package sources of this machine that are Debian's.
func makeRoot(ctx context.Context, out string, epoch time.Time) error {
	const format = "$(CODENAME)\tdeb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)"
	text, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", format, "Created-By: Packages", "Origin: Debian").Output()
	if err != nil {
		return fmt.Errorf("apt-get indextargets: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(lines)
	suite, sources := "", ""
	for _, line := range slices.Compact(lines) {
		codename, source, _ := strings.Cut(line, "\t")
		if sources += source + "\n"; suite == "" || len(codename) < len(suite) { // bookworm, not bookworm-updates
			suite = codename
		}
	}
	if suite == "" {
		return errors.New("this machine's package lists have nothing of Debian: run apt-get update, or name a root with -root")
	}
	list := out + ".list"
	if err := os.WriteFile(list, []byte(sources), 0o600); err != nil {
		return err
	}
	return tool(ctx, []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", epoch.Unix())}, "mmdebstrap", "--quiet", "--variant=custom", "--hook-dir="+mmdebstrapHooks,
		"--include="+strings.Join(packages, ","), "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
		"--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/man/*", suite, out, list)
}

// debianRoot is a Debian root as a layer, and its list of packages.
type debianRoot struct {
	layer
	status []byte // var/lib/dpkg/status
}

// unwanted are the files of a root that an image does not need, or that differ between two builds.
var unwanted = []string{
	"dev/*", "etc/apt", "etc/machine-id", "etc/resolv.conf", "etc/hostname", "etc/dpkg/dpkg.cfg.d/*", "run/*", "tmp/*", "usr/share/lintian",
	"var/cache/*", "var/lib/apt", "var/lib/dpkg/*-old", "var/log/*", "var/lib/systemd",
}

func isUnwanted(name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if slices.ContainsFunc(unwanted, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }) {
			return true
		}
	}
	return false
}

// readRoot reads the tar of a root. Files newer than epoch get that time.
func readRoot(file string, epoch time.Time) (debianRoot, error) {
	f, err := os.Open(file)
	if err != nil {
		return debianRoot{}, err
	}
	defer f.Close()
	var root debianRoot
	from := tar.NewReader(f)
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return debianRoot{}, fmt.Errorf("%s: %w", file, err)
		}
		name := filepath.Clean(header.Name)
		if name == "." || isUnwanted(name) {
			continue
		}
		var text bytes.Buffer
		if _, err := io.Copy(&text, from); err != nil {
			return debianRoot{}, fmt.Errorf("%s: %s: %w", file, name, err)
		}
		if name == "var/lib/dpkg/status" {
			root.status = text.Bytes()
		}
		clean := tar.Header{Typeflag: header.Typeflag, Name: name, Linkname: header.Linkname, Size: header.Size, Mode: header.Mode, Uid: header.Uid, Gid: header.Gid, ModTime: header.ModTime}
		if header.Typeflag == tar.TypeLink {
			clean.Linkname = filepath.Clean(header.Linkname)
		}
		if clean.ModTime.After(epoch) {
			clean.ModTime = epoch
		}
		root.layer = append(root.layer, entry{&clean, text.Bytes()})
	}
	if root.status == nil {
		return debianRoot{}, fmt.Errorf("%s: no var/lib/dpkg/status: this is no root of Debian", file)
	}
	return root, nil
}
