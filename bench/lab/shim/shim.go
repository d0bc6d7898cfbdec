package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/upstream"
	"synclab/bench/outfile"
	"synclab/proxier/iptables"
)

// Options say where to install the shim, and in front of which tools.
type Options struct {
	// Dir gets the folder for PATH and the file of calls. It must be empty or not exist, on a file system that allows
	// running programs.
	Dir string
	// Variant is the variant that plain names (iptables-restore) run: "legacy", "nft", or empty for the system's
	// choice.
	Variant string
	// Tools are the names of the tools. Default: Tools(). Tools that the machine lacks are left out.
	Tools []string
	// Command is the path of the program, from Command(). Default: it is built if necessary.
	Command string
	// Families limits faults to the iptables tools of these families, so that other families do not consume them.
	// Default: all. The family of an nft call is not known before nft reads its input.
	Families []corev1.IPFamily
}

// Shim is an installed shim.
type Shim struct {
	dir     string
	folder  *outfile.Folder // dir. The subject may write in it, so its files are found by this descriptor
	command string          // the program
	copied  string          // a name of its copy in the folder; empty: there is none yet
	planted atomic.Int64
}

// The folders and files of a shim, with the program's names for them.
const (
	binFolder    = "bin"
	realFolder   = "real"
	spared       = "spare-" // plus iptables or ip6tables: faults skip these tools
	faultsFolder = "faults"
	inputsFolder = "inputs"
	callsFile    = "calls"
)

// Tools returns the names that a proxier may call: the iptables tools of both families and both variants, nft,
// conntrack and ipset.
func Tools() []string {
	tools := []string{"nft", "conntrack", "ipset"}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, variant := range []string{"", "-legacy", "-nft"} {
			for _, tool := range []string{"", "-restore", "-save"} {
				tools = append(tools, family+variant+tool)
			}
		}
	}
	return tools
}

// Install makes the folder. It leaves out missing tools, but a missing tool of the given variant is an error.
func Install(ctx context.Context, opts Options) (*Shim, error) {
	if opts.Tools == nil {
		opts.Tools = Tools()
	}
	if opts.Command == "" {
		path, err := Command(ctx)
		if err != nil {
			return nil, err
		}
		opts.Command = path
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	s := &Shim{dir: dir, command: opts.Command}
	if s.folder, err = outfile.MakeFolder(dir); err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	for _, folder := range []string{binFolder, realFolder} {
		if err := s.folder.Root.MkdirAll(folder, 0o755); err != nil {
			return nil, fmt.Errorf("shim: %w", err)
		}
	}
	if err := upstream.MayRun(dir); err != nil {
		return nil, fmt.Errorf("shim: %w: let TMPDIR name another folder", err)
	}
	for _, name := range opts.Tools {
		path, err := s.find(real(name, opts.Variant))
		switch {
		case err == nil:
		case real(name, opts.Variant) != name:
			return nil, fmt.Errorf("shim: %w", err)
		default:
			continue
		}
		tool, loader, libraries := behind(path)
		if err := errors.Join(s.put(name, tool), s.putLoader(name, loader, libraries)); err != nil {
			return nil, fmt.Errorf("shim: %s: %w", name, err)
		}
	}
	for tools, family := range map[string]corev1.IPFamily{"iptables": corev1.IPv4Protocol, "ip6tables": corev1.IPv6Protocol} {
		if len(opts.Families) == 0 || slices.Contains(opts.Families, family) {
			continue
		}
		if err := os.WriteFile(s.path(spared+tools), nil, 0o644); err != nil {
			return nil, fmt.Errorf("shim: %w", err)
		}
	}
	calls, err := os.OpenFile(s.path(callsFile), os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	return s, calls.Close()
}

// SetVariant makes the plain names (iptables-restore) run another variant from now on.
func (s *Shim) SetVariant(variant string) error {
	for _, name := range Tools() {
		tool := real(name, variant)
		if tool == name {
			continue
		}
		path, err := s.find(tool)
		if err != nil {
			return fmt.Errorf("shim: %w", err)
		}
		for _, folder := range []string{realFolder, loaderFolder, binFolder} {
			if err := s.folder.Root.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("shim: %w", err)
			}
		}
		behind, loader, libraries := behind(path)
		if err := errors.Join(s.put(name, behind), s.putLoader(name, loader, libraries)); err != nil {
			return fmt.Errorf("shim: %s: %w", name, err)
		}
	}
	return nil
}

// real returns the tool to run for a name: a plain name of an iptables tool runs the variant's tool.
func real(name, variant string) string {
	family, rest, _ := strings.Cut(name, "-")
	if variant == "" || family != "iptables" && family != "ip6tables" {
		return name
	}
	switch rest {
	case "":
		return family + "-" + variant
	case "restore", "save":
		return family + "-" + variant + "-" + rest
	}
	return name // names a variant already
}

// Path returns the folder that must be first on the subject's PATH.
func (s *Shim) Path() string { return s.path(binFolder) }

func (s *Shim) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// system are the folders that PATH may lack: sbin for ordinary users, the others if PATH was written by hand.
var system = []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"}

// find looks a tool up on PATH and in the system's folders, but not in the shim's folder.
func (s *Shim) find(name string) (string, error) {
	if iptables.WritesRules(name) && os.Getenv(iptables.EnvTools) != "" {
		return iptables.FindBinary(name)
	}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), system...) {
		path := filepath.Join(dir, name)
		if !filepath.IsAbs(dir) || filepath.Dir(path) == s.Path() { // skip "" and ".": they mean the working directory
			continue
		}
		if stat, err := os.Stat(path); err == nil && stat.Mode().IsRegular() && stat.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w on PATH or in %s", name, os.ErrNotExist, strings.Join(system, ", "))
}

// put installs the program in front of a tool. It makes a copy and hard links to it, not symbolic links, because the program
// finds its folder by its own path. It never links to the program itself: a subject may write in this folder.
func (s *Shim) put(name, tool string) error {
	if err := s.folder.Root.Symlink(tool, filepath.Join(realFolder, name)); err != nil {
		return err
	}
	to := filepath.Join(binFolder, name)
	if s.copied != "" && s.folder.Root.Link(s.copied, to) == nil {
		return nil
	}
	s.copied = to
	return s.copyFile(s.command, to)
}

// putLoader notes the loader of a tool, if it has one.
func (s *Shim) putLoader(name, loader, libraries string) error {
	if loader == "" {
		return nil
	}
	err := s.folder.Root.Symlink(libraries, librariesLink)
	if errors.Is(err, fs.ErrExist) {
		err = nil // the same for all tools
	}
	return errors.Join(err, s.folder.Root.MkdirAll(loaderFolder, 0o755), s.folder.Root.Symlink(loader, filepath.Join(loaderFolder, name)))
}

// copyFile copies a file to a relative path in the shim's folder.
func (s *Shim) copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := s.folder.Root.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
