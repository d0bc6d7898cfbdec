package upstream

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Synclab builds the command synclab of a checkout (Source), or of a revision (Version) of the repository that the working
// directory is in, and returns its path in the cache.
func Synclab(ctx context.Context, opts Options) (string, error) {
	if opts.Source != "" {
		return checkout(ctx, "synclab", opts)
	}
	top, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return "", fmt.Errorf("revision %s: not in a checkout of Synclab, or name one, as synclab@src:NAME=DIR/…: %w", opts.Version, err)
	}
	commit, err := git(ctx, "-C", top, "rev-parse", "--verify", "--end-of-options", opts.Version+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("revision %s of %s: %w", opts.Version, top, err)
	}
	cache, err := OpenCache(opts.Cache)
	if err != nil {
		return "", err
	}
	private, err := privateFolder(cache.dir)
	if err != nil {
		return "", err
	}
	defer private.Remove()
	opts.Source = filepath.Join(private.Path, "tree")
	if _, err := git(ctx, "clone", "--quiet", "--shared", "--no-checkout", top, opts.Source); err != nil {
		return "", err
	}
	if _, err := git(ctx, "-C", opts.Source, "checkout", "--quiet", "--detach", commit); err != nil {
		return "", err
	}
	return checkout(ctx, "synclab", opts)
}

// git returns what a git command prints. The error has what it says.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}
