package shim

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"synclab/bench/lab/shim/root"
	"synclab/bench/lab/upstream"
	"synclab/bench/outfile"
	"synclab/proxier/iptables"
)

// The links of a shim to tools of another system, with the program's names for them.
const (
	loaderFolder  = "loader"
	librariesLink = "libraries"
)

// foreignTools are the tools that Use takes from another system.
func foreignTools() []string {
	var names []string
	for _, name := range Tools() {
		if iptables.WritesRules(name) {
			names = append(names, name)
		}
	}
	return names
}

// Use makes this process and its children use the tools of another system that write rules, and no others: those below
// rootDir, which is its root. dir is an empty folder for the links. The environment says so, until release is called. An
// error names rootDir and the tool: one that cannot run, or that others are useless without.
func Use(ctx context.Context, rootDir, dir string) (release func(), err error) {
	r, err := root.Open(rootDir)
	if err != nil {
		return nil, err
	}
	found, err := findTools(r)
	if err != nil {
		return nil, err
	}
	s := &Shim{dir: dir}
	if s.folder, err = outfile.MakeFolder(dir); err != nil {
		return nil, err
	}
	defer s.folder.Close()
	if s.command, err = Command(ctx); err != nil {
		return nil, err
	}
	if err := s.link(r, found); err != nil {
		return nil, fmt.Errorf("tools of %s: %w", r.Dir(), err)
	}
	return setenv(map[string]string{
		iptables.EnvTools: s.Path() + ":" + r.Dir(),
		"PATH":            s.Path() + ":" + os.Getenv("PATH"),
		"XTABLES_LIBDIR":  s.path("xtables"),
	}), nil
}

// DigestOf returns the digest of the tools that Use would take from rootDir.
func DigestOf(rootDir string) (string, error) {
	r, err := root.Open(rootDir)
	if err != nil {
		return "", err
	}
	found, err := findTools(r)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(found)) {
		digest, err := upstream.Digest(found[name].Path)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, name, digest)
	}
	return fmt.Sprintf("sha256:%x", sum.Sum(nil)), nil
}

// setenv sets variables of the environment, and returns a function that sets them back.
func setenv(values map[string]string) (restore func()) {
	before := map[string]*string{}
	for name, value := range values {
		if old, there := os.LookupEnv(name); there {
			before[name] = &old
		} else {
			before[name] = nil
		}
		os.Setenv(name, value)
	}
	return func() {
		for name, old := range before {
			if old == nil {
				os.Unsetenv(name)
			} else {
				os.Setenv(name, *old)
			}
		}
	}
}

func findTools(r *root.Root) (map[string]root.Tool, error) {
	found := map[string]root.Tool{}
	for _, name := range foreignTools() {
		tool, err := r.Find(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found[name] = tool
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no iptables, nft or ipset below %s: want the root of a system, with folders such as usr/sbin", r.Dir())
	}
	for _, name := range foreignTools() {
		family, rest, _ := strings.Cut(name, "-")
		variant, tool, _ := strings.Cut(rest, "-")
		if variant == "" || tool != "restore" || found[name].Path == "" {
			continue
		}
		for _, other := range []string{family + "-" + variant, family + "-" + variant + "-save"} {
			if found[other].Path == "" {
				return nil, fmt.Errorf("%s is below %s, but not %s, which belongs to it", name, r.Dir(), other)
			}
		}
	}
	return found, nil
}

// link installs the program in front of tools. All names are links to files that were found, so that nothing follows the
// other system's links.
func (s *Shim) link(r *root.Root, tools map[string]root.Tool) error {
	libraries, extensions := map[string]string{}, r.Extensions()
	need := func(file string) error {
		needed, err := r.Libraries(file)
		maps.Copy(libraries, needed)
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		if err := need(tools[name].Path); err != nil && tools[name].Loader != "" {
			return err
		}
	}
	// There too, an extension without its library cannot be used, and the others can.
	maps.DeleteFunc(extensions, func(_, file string) bool { return need(file) != nil })
	for _, folder := range []string{binFolder, realFolder, loaderFolder, "exe", "lib", "xtables"} {
		if err := os.MkdirAll(s.path(folder), 0o755); err != nil {
			return err
		}
	}
	for folder, files := range map[string]map[string]string{"lib": libraries, "xtables": extensions} {
		for name, file := range files {
			if err := os.Symlink(file, s.path(folder, name)); err != nil {
				return err
			}
		}
	}
	if err := os.Symlink(s.path("lib"), s.path(librariesLink)); err != nil {
		return err
	}
	for name, tool := range tools {
		exe := s.path("exe", name) // iptables' tools are one program that looks at the name it is called by
		if err := errors.Join(os.Symlink(tool.Path, exe), s.put(name, exe)); err != nil {
			return err
		}
		if tool.Loader != "" {
			if err := os.Symlink(tool.Loader, s.path(loaderFolder, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// behind returns what runs when path is called. If path is the program of another shim, as Use installs it, that is what
// stands behind it: a call needs one such program only. loader and libraries are empty without a loader.
func behind(path string) (tool, loader, libraries string) {
	dir, name := filepath.Dir(filepath.Dir(path)), filepath.Base(path)
	if path != filepath.Join(dir, binFolder, name) {
		return path, "", ""
	}
	tool, err := os.Readlink(filepath.Join(dir, realFolder, name))
	if err != nil {
		return path, "", ""
	}
	loader, _ = os.Readlink(filepath.Join(dir, loaderFolder, name))
	libraries, _ = os.Readlink(filepath.Join(dir, librariesLink))
	return tool, loader, libraries
}
