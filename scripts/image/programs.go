package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"synclab/bench/lab/shim"
	"synclab/bench/lab/upstream"
)

// shipped is where synclab looks for programs that came with it.
var shipped = path.Join("usr/local/bin", upstream.Shipped)

// programs returns the files of other projects, kube-proxy and the kernel, and those of this one.
func programs(ctx context.Context, work string, o options) (foreign, own []file, err error) {
	say := func(line string) { fmt.Fprintln(os.Stderr, line) }
	kubeProxy, version, err := upstream.KubeProxy(ctx, upstream.Options{Progress: say})
	if err != nil {
		return nil, nil, err
	}
	if foreign, err = fromCache(foreign, kubeProxy, "", version); err != nil {
		return nil, nil, err
	}
	foreign = append(foreign, file{name: "usr/local/bin/kube-proxy", link: "/" + path.Join(shipped, filepath.Base(kubeProxy))})
	if o.kernel != "" {
		kernel, release, err := upstream.Linux(ctx, upstream.LinuxOptions{Version: o.kernel, Progress: say})
		if err != nil {
			return nil, nil, err
		}
		if foreign, err = fromCache(foreign, kernel, "linux", release); err != nil {
			return nil, nil, err
		}
	}
	front, err := shim.Command(ctx)
	if err != nil {
		return nil, nil, err
	}
	digest, err := upstream.Digest(front)
	if err != nil {
		return nil, nil, err
	}
	// Without cgo, so that it needs no library of the build machine.
	binary := filepath.Join(work, "synclab")
	env := []string{"CGO_ENABLED=0", "GOFLAGS="}
	if err := tool(ctx, env, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X synclab/bench/lab/machine.Commit="+o.commit+" -X synclab/bench/lab/shim.besideDigest="+digest, "-o", binary, "./cmd/synclab"); err != nil {
		return nil, nil, err
	}
	for name, from := range map[string]string{"synclab": binary, shim.Beside: front} {
		text, err := os.ReadFile(from)
		if err != nil {
			return nil, nil, err
		}
		own = append(own, file{name: path.Join("usr/local/bin", name), text: text, mode: 0o755})
	}
	for _, name := range []string{"kubectl-synclab", "kubectl_complete-synclab"} {
		own = append(own, file{name: path.Join("usr/local/bin", name), link: "synclab"})
	}
	return foreign, own, nil
}

// fromCache adds a file of the user's cache, with the file that describes it.
func fromCache(all []file, from, contains, version string) ([]file, error) {
	text, err := os.ReadFile(from)
	if err != nil {
		return nil, err
	}
	origin, err := os.ReadFile(upstream.Origin(from))
	if err != nil {
		return nil, err
	}
	name := path.Join(shipped, filepath.Base(from))
	return append(all, file{name: name, text: text, mode: 0o755, contains: contains, version: strings.TrimSpace(version)},
		file{name: upstream.Origin(name), text: origin, mode: 0o644}), nil
}
