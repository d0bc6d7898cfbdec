package upstream

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// CiliumVersion is the version of Cilium in cilium.mod.
const CiliumVersion = "v1.20.2"

//go:embed cilium.mod
var ciliumMod []byte

//go:embed cilium.sum
var ciliumSum []byte

// CiliumPrograms are the paths of Cilium's load balancer control plane, and of its programs for sockets.
type CiliumPrograms struct{ Control, Sockets string }

// Cilium returns the paths of two unmodified parts of Cilium's module. Of the options it uses Cache, CachedOnly and
// Progress.
func Cilium(ctx context.Context, opts Options) (paths CiliumPrograms, err error) {
	b := builder{
		Options: opts, command: "cilium-lb", program: cilium + "/pkg/loadbalancer/repl", version: CiliumVersion,
		mod: ciliumMod, sum: ciliumSum,
	}
	if b.cache, err = OpenCache(b.Cache); err == nil {
		paths.Sockets, err = b.sockets(ctx) // first: it takes seconds, and what it needs may be missing
	}
	if err == nil {
		paths.Control, err = b.find(ctx)
	}
	if err != nil {
		return CiliumPrograms{}, fmt.Errorf("%s: %w", b.command, err)
	}
	return paths, nil
}

const cilium = "github.com/cilium/cilium"

// ErrNoClang means that the machine has no clang. Other errors wrap it.
var ErrNoClang = errors.New("no clang on PATH to compile the programs for sockets with: install it (Debian: apt-get install clang)")

// socketFlags are for clang: as Cilium's agent compiles, with the agent's defaults where it replaces kube-proxy. Trace
// events are off, since nothing reads them.
var socketFlags = []string{
	"-O2", "--target=bpf", "-std=gnu99", "-nostdinc", "-ftrap-function=__undefined_trap", "-g", "-w", "-mcpu=v3",
	"-DENABLE_IPV4=1", "-DENABLE_IPV6=1", "-DENABLE_NODEPORT=1", "-DENABLE_SOCKET_LB_PEER=1", "-DSKIP_DEBUG=1", "-I.", "-Iinclude",
}

// sockets returns the path of the object file of bpf_sock.c. It compiles the file if necessary, which takes seconds.
func (b *builder) sockets(ctx context.Context) (string, error) {
	name, origin := "cilium-sock-"+b.version+".o", fmt.Sprintf("%s %x", b.origin(), sha256.Sum256([]byte(strings.Join(socketFlags, " "))))
	if b.CachedOnly {
		if path := b.cache.newest(name, origin); path != "" {
			return path, nil
		}
		return "", ErrNotBuilt
	}
	return b.cache.Get(ctx, name, origin, func(path string) error {
		clang, err := exec.LookPath("clang")
		if err != nil {
			return ErrNoClang
		}
		private, err := privateFolder(b.cache.dir)
		if err != nil {
			return err
		}
		defer private.Remove()
		if err := b.module(ctx, private.Path); err != nil {
			return err
		}
		out, err := Go(ctx, private.Path, []string{"GOFLAGS="}, nil, "mod", "download", "-json", cilium)
		if err != nil {
			return err
		}
		var module struct{ Dir string }
		if err := json.Unmarshal(out, &module); err != nil {
			return fmt.Errorf("go mod download: %w", err)
		}
		cmd := exec.CommandContext(ctx, clang, append(socketFlags, "-c", "bpf_sock.c", "-o", path)...)
		cmd.Dir = filepath.Join(module.Dir, "bpf")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s bpf_sock.c: %w%s", clang, err, indented(strings.TrimSpace(string(said))))
		}
		return nil
	})
}
