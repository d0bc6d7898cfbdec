package root

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Tool is a program of the other system. Its paths are without links.
type Tool struct {
	Path   string
	Loader string // empty: the program is static
}

// folders are where programs are; their order is that of a usual PATH of root.
var folders = []string{"usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"}

// Find finds a tool by its name. A plain name of an iptables tool is a choice of its variant, which packages leave to
// scripts of their installation, and images to a program that changes links. So it is never followed to such a program:
// it is nft where that exists, else legacy, unless it leads to one of the two. An error wraps fs.ErrNotExist if the tool
// is not there. All other errors mean that it is there and cannot run.
func (r *Root) Find(name string) (Tool, error) {
	family, rest, _ := strings.Cut(name, "-")
	plain := (family == "iptables" || family == "ip6tables") && (rest == "" || rest == "save" || rest == "restore")
	if !plain {
		return r.find(name)
	}
	chosen, err := r.find(name)
	var choices []Tool
	for _, variant := range []string{"nft", "legacy"} {
		tool, err := r.find(strings.TrimSuffix(family+"-"+variant+"-"+rest, "-"))
		if err == nil {
			choices = append(choices, tool)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return Tool{}, err
		}
	}
	switch {
	case len(choices) == 0 && err == nil:
		return Tool{}, fmt.Errorf("%s below %s has no variant: iptables 1.8 or later is needed", name, r.dir)
	case len(choices) == 0:
		return Tool{}, err
	case err == nil && slices.Contains(choices, chosen):
		return chosen, nil
	}
	return choices[0], nil
}

func (r *Root) find(name string) (Tool, error) {
	for _, folder := range folders {
		file, err := r.Resolve(path.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Tool{}, err
		}
		if stat, err := os.Stat(file); err != nil || !stat.Mode().IsRegular() || stat.Mode()&0o111 == 0 {
			return Tool{}, fmt.Errorf("%s is not a program (%v)", file, err)
		}
		loader, err := r.loader(file)
		return Tool{file, loader}, err
	}
	return Tool{}, fmt.Errorf("%s: %w below %s (%s)", name, fs.ErrNotExist, r.dir, strings.Join(folders, ", "))
}

// machines are the processors of this program's architectures.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// loader returns the loader that a program names; empty: none.
func (r *Root) loader(file string) (string, error) {
	program, err := elf.Open(file)
	if err != nil {
		return "", fmt.Errorf("%s is no ELF program, and scripts are not run: %w", file, err)
	}
	defer program.Close()
	if want := machines[runtime.GOARCH]; program.Machine != want {
		return "", fmt.Errorf("%s is for another processor: %v, not %v", file, program.Machine, want)
	}
	for _, part := range program.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(part.Open(), 4096)) // the longest path
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		name := strings.TrimRight(string(text), "\x00")
		loader, err := r.Resolve(name)
		if err != nil {
			return "", fmt.Errorf("%s needs its loader %s, which is not below %s: unpack the C library there too", file, name, r.dir)
		}
		return loader, nil
	}
	return "", nil
}

// libraryFolders returns the folders with libraries, in the order of the search, without links.
func (r *Root) libraryFolders() []string {
	var found []string
	add := func(dir string) {
		if stat, err := os.Lstat(dir); err == nil && stat.IsDir() && !slices.Contains(found, dir) {
			found = append(found, dir)
		}
	}
	for _, at := range []string{"usr/local/lib", "lib", "usr/lib", "lib64", "usr/lib64"} {
		dir, err := r.Resolve(at)
		if err != nil {
			continue
		}
		triplets, _ := filepath.Glob(filepath.Join(dir, "*-linux-*")) // as Debian has them
		for _, triplet := range triplets {
			add(triplet)
		}
		add(dir)
	}
	return found
}

// Libraries returns all libraries that ELF files need, by name, without links. A library that is missing is an error. The
// modules by which the C library reads files such as /etc/services are among them, if they exist.
func (r *Root) Libraries(files ...string) (map[string]string, error) {
	in := r.libraryFolders()
	found := r.filesIn(in, "libnss_*.so*")
	for todo := slices.Clone(files); len(todo) > 0; todo = todo[1:] {
		names, err := needs(todo[0])
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if found[name] != "" {
				continue
			}
			if found[name] = r.library(name, in); found[name] == "" {
				return nil, fmt.Errorf("%s needs %s, which is not below %s: unpack the package that has it there too", todo[0], name, r.dir)
			}
			todo = append(todo, found[name])
		}
	}
	return found, nil
}

func (r *Root) library(name string, folders []string) string {
	for _, dir := range folders {
		if file, err := r.Resolve(strings.TrimPrefix(filepath.Join(dir, name), r.dir)); err == nil {
			return file
		}
	}
	return ""
}

// filesIn returns the files in folders that match a pattern, by name, without links. The first of a name counts.
func (r *Root) filesIn(folders []string, pattern string) map[string]string {
	files := map[string]string{}
	for _, dir := range folders {
		matches, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, match := range matches {
			name := filepath.Base(match)
			if file, err := r.Resolve(strings.TrimPrefix(match, r.dir)); err == nil && files[name] == "" {
				files[name] = file
			}
		}
	}
	return files
}

// Extensions returns the extensions of iptables, by file name, without links.
func (r *Root) Extensions() map[string]string {
	var folders []string
	for _, dir := range r.libraryFolders() {
		folders = append(folders, filepath.Join(dir, "xtables"))
	}
	return r.filesIn(folders, "*.so")
}

// needs returns the names of the libraries that an ELF file needs itself.
func needs(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return names, nil
}
