package upstream

import (
	"context"
	_ "embed"
	"fmt"
)

// CiliumVersion is the version of Cilium in cilium.mod.
const CiliumVersion = "v1.20.2"

//go:embed cilium.mod
var ciliumMod []byte

//go:embed cilium.sum
var ciliumSum []byte

// Cilium returns the path of Cilium's load balancer control plane, a program of Cilium's module, and its version. Of the
// options it uses Cache, CachedOnly and Progress.
func Cilium(ctx context.Context, opts Options) (path, version string, err error) {
	b := builder{
		Options: opts, command: "cilium-lb", program: "github.com/cilium/cilium/pkg/loadbalancer/repl", version: CiliumVersion,
		mod: ciliumMod, sum: ciliumSum,
	}
	if path, err = b.find(ctx); err != nil {
		return "", "", fmt.Errorf("%s: %w", b.command, err)
	}
	return path, CiliumVersion, nil
}
