package conform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/process"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/kernel"
	"synclab/sim"
	"synclab/sim/front"
)

// kubeProxy is an unmodified kube-proxy in a separate network namespace, with the fake API server that it watches.
type kubeProxy struct {
	space   *space
	variant iptables.Variant
	cmd     *exec.Cmd
	exited  chan struct{}
	most    time.Duration // to wait for it
	log     string
	front   *front.Front
	hangUp  context.CancelFunc // stops the fake API server
}

// startKubeProxy runs the command in a namespace with the node's addresses, on the feed's cluster.
func startKubeProxy(ctx context.Context, command string, s Setting, node *corev1.Node, f *feed) (*kubeProxy, error) {
	sp, err := newSpace(subject.DeviceAddresses(s.Config, node))
	if err != nil {
		return nil, err
	}
	k := &kubeProxy{space: sp, variant: s.Variant, most: cmp.Or(s.MaxTime, lookTimeout), exited: make(chan struct{})}
	dir, err := os.MkdirTemp(os.Getenv("SYNCLAB_LAB_DIR"), "kube-proxy-")
	if err != nil {
		sp.close()
		return nil, fmt.Errorf("kube-proxy: %w", err)
	}
	k.log = filepath.Join(dir, "log")
	if err := k.start(ctx, command, dir, s, node, f); err != nil {
		k.stop()
		return nil, fmt.Errorf("kube-proxy: %w", err)
	}
	return k, nil
}

func (k *kubeProxy) start(ctx context.Context, command, dir string, s Setting, node *corev1.Node, f *feed) error {
	if err := linkTools(filepath.Join(dir, "bin"), s.Variant); err != nil {
		return err
	}
	if s.tools != nil {
		if err := s.tools(filepath.Join(dir, "bin")); err != nil {
			return err
		}
	}
	var listener net.Listener
	if err := k.space.do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		return err
	}
	serving, hangUp := context.WithCancel(ctx)
	k.hangUp = hangUp
	var err error
	if k.front, err = front.New(f.cluster, front.Options{ServiceCIDRs: sim.DefaultServiceCIDRs()}); err != nil {
		return errors.Join(err, listener.Close())
	}
	go func() { _ = k.front.Serve(serving, listener) }() // kube-proxy's log shows if this server fails
	kubeconfig, err := front.Kubeconfig("http://"+listener.Addr().String(), nil)
	if err != nil {
		return err
	}
	cfg, err := s.kubeProxyConfig(node.Name, filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "kubeconfig"), kubeconfig, 0o600), os.WriteFile(filepath.Join(dir, "config"), cfg, 0o600)); err != nil {
		return err
	}
	log, err := os.Create(k.log)
	if err != nil {
		return err
	}
	defer log.Close()
	k.cmd = exec.Command(command, "--config", filepath.Join(dir, "config"), "-v", "2")
	k.cmd.Stdout, k.cmd.Stderr = log, log
	k.cmd.Env = append(process.Environment(nil), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "XTABLES_LOCKFILE="+filepath.Join(dir, "lock"))
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // when the namespace's thread ends
	if err := k.space.do(k.cmd.Start); err != nil {
		return err
	}
	go func() { _ = k.cmd.Wait(); close(k.exited) }()
	return nil
}

// linkTools fills a folder in which the plain name iptables is the given variant. The binaries of both variants choose
// their function by the name they are called by, and know the plain names.
func linkTools(dir string, variant iptables.Variant) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, family := range both {
		for _, tool := range []string{"", "save", "restore"} {
			name := iptables.Binary(variant, family, tool)
			path, err := iptables.FindBinary(name)
			if err != nil {
				return err
			}
			if err := os.Symlink(path, filepath.Join(dir, strings.Replace(name, "-"+string(variant), "", 1))); err != nil {
				return err
			}
		}
	}
	return nil
}

// The kernel sends no notification of a change in legacy tables, so await polls.
const (
	lookEvery   = 3 * time.Millisecond
	lookTimeout = time.Minute
)

// await returns when nat has the given chain in each family.
func (k *kubeProxy) await(ctx context.Context, chains map[corev1.IPFamily]string) error {
	return k.awaitEach(ctx, func(family corev1.IPFamily) (bool, error) { return k.has(family, chains[family]) })
}

// awaitEach polls until has returns true for each family.
func (k *kubeProxy) awaitEach(ctx context.Context, has func(corev1.IPFamily) (bool, error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	timeout := time.After(k.most)
	for _, family := range both {
		for {
			there, err := has(family)
			if err != nil {
				return err
			}
			if there {
				break
			}
			select {
			case <-tick.C:
			case <-timeout:
				return fmt.Errorf("kube-proxy has not synced %s within %s (--max-time)%s", family, k.most, k.reports())
			case <-k.exited:
				return fmt.Errorf("kube-proxy exited: %s%s", k.cmd.ProcessState, k.reports())
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

func (k *kubeProxy) has(family corev1.IPFamily, name string) (there bool, err error) {
	err = k.space.do(func() error {
		chains, err := kernel.Chains(string(k.variant), family, "nat")
		for _, c := range chains {
			there = there || c.Name == name
		}
		return err
	})
	return there, err
}

// saveIn reads the rules of a namespace.
func saveIn(s *space, variant iptables.Variant, family corev1.IPFamily) (Grouped, error) {
	out, err := savedIn(s, variant, family)
	if err != nil {
		return nil, err
	}
	tables, err := rule.ParseTables(family, out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", iptables.Binary(variant, family, "save"), err)
	}
	return Group(Tables(tables).Reachable()), nil
}

// savedIn returns the output of iptables-save in a namespace.
func savedIn(s *space, variant iptables.Variant, family corev1.IPFamily) (out []byte, err error) {
	name := iptables.Binary(variant, family, "save")
	path, err := iptables.FindBinary(name)
	if err != nil {
		return nil, err
	}
	if err := s.do(func() (err error) {
		out, err = exec.Command(path).Output()
		return err
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

// mostReports is the number of lines of kube-proxy's log that an error has.
const mostReports = 5

// reports returns the last distinct errors in kube-proxy's log, a line each.
func (k *kubeProxy) reports() string {
	log, err := os.Open(k.log)
	if err != nil {
		return "\n" + err.Error()
	}
	defer log.Close()
	last := process.Errors{Most: mostReports}
	if err := last.Read(log); err != nil {
		return "\n" + err.Error()
	}
	text := ""
	for _, line := range last.Lines() {
		text += "\n  " + raw.Brief(line, raw.LineLength)
	}
	if text == "" {
		return "; its log has no errors"
	}
	return "; it reports:" + text
}

func (k *kubeProxy) stop() {
	if k.cmd != nil && k.cmd.Process != nil {
		_ = k.cmd.Process.Kill()
		<-k.exited
	}
	if k.hangUp != nil {
		k.hangUp()
	}
	if k.front != nil {
		k.front.Close() // the feed's cluster stays, for another kube-proxy
	}
	k.space.close()
	_ = os.RemoveAll(filepath.Dir(k.log))
}
