package apiserver

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Programs are the paths of the programs to start.
type Programs struct {
	APIServer, Etcd string
}

// ErrMissing is wrapped by Find's error.
var ErrMissing = errors.New("no API server on this machine")

// Find looks for kube-apiserver and etcd on PATH.
func Find() (Programs, error) {
	var p Programs
	var missing []string
	for name, path := range map[string]*string{"kube-apiserver": &p.APIServer, "etcd": &p.Etcd} {
		found, err := exec.LookPath(name)
		if err != nil {
			missing = append(missing, name)
		}
		*path = found
	}
	if len(missing) > 0 {
		return Programs{}, fmt.Errorf("%w: %s not found on PATH", ErrMissing, strings.Join(missing, " and "))
	}
	return p, nil
}

// Server is a running API server.
type Server struct {
	programs       Programs
	dir            string
	port           int
	etcdURL        string
	etcd, api      *process
	admin, readers string // tokens
}

// Ranges of cluster IPs.
const serviceCIDRs = "10.96.0.0/16,fd00:10:96::/112"

// Start starts both programs, with all their files in dir. ctx limits the wait until the server is ready, not its
// life.
func Start(ctx context.Context, p Programs, dir string) (*Server, error) {
	s := &Server{programs: p, dir: dir, admin: rand.Text(), readers: rand.Text()}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	s.port, s.etcdURL = ports[0], "http://127.0.0.1:"+strconv.Itoa(ports[1])
	peer := "http://127.0.0.1:" + strconv.Itoa(ports[2])
	if err := s.writeSecrets(); err != nil {
		return nil, err
	}
	s.etcd, err = start(dir, p.Etcd, "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", s.etcdURL, "--advertise-client-urls", s.etcdURL,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	if err != nil {
		return nil, err
	}
	if err := s.startAPI(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	if err := s.allowReaders(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// writeSecrets writes the key that signs service account tokens, which the server requires, and its users' tokens.
func (s *Server) writeSecrets() error {
	const keyBits = 2048
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	tokens := fmt.Sprintf("%s,admin,1,system:masters\n%s,reader,2,readers\n", s.admin, s.readers)
	return errors.Join(os.WriteFile(filepath.Join(s.dir, "sa.key"), text, 0o600),
		os.WriteFile(filepath.Join(s.dir, "tokens.csv"), []byte(tokens), 0o600))
}

func (s *Server) startAPI(ctx context.Context) error {
	key := filepath.Join(s.dir, "sa.key")
	var err error
	// It makes its own certificate. The advertised address belongs to no host: nothing connects from inside a cluster.
	s.api, err = start(s.dir, s.programs.APIServer, "--etcd-servers", s.etcdURL, "--secure-port", strconv.Itoa(s.port), "--bind-address", "127.0.0.1",
		"--advertise-address", "192.0.2.1", "--endpoint-reconciler-type", "none", "--cert-dir", filepath.Join(s.dir, "certificates"),
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--token-auth-file", filepath.Join(s.dir, "tokens.csv"), "--authorization-mode", "RBAC", "--service-cluster-ip-range", serviceCIDRs,
		"--disable-admission-plugins", "ServiceAccount")
	if err != nil {
		return err
	}
	return s.await(ctx)
}

// await polls until the server is ready: the server has no event to wait for.
func (s *Server) await(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.Admin())
	if err != nil {
		return err
	}
	for {
		err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-s.api.ended:
			return fmt.Errorf("kube-apiserver ended: %w\n%s", s.api.err, s.api.lastWords())
		case <-s.etcd.ended:
			return fmt.Errorf("etcd ended: %w\n%s", s.etcd.err, s.etcd.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("waiting for kube-apiserver: %w; last: %w\n%s", context.Cause(ctx), err, s.api.lastWords())
		}
	}
}

// allowReaders lets the reader list and watch what Service proxies read, and nothing else.
func (s *Server) allowReaders(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.Admin())
	if err != nil {
		return err
	}
	verbs := []string{"list", "watch"}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		Rules: []rbacv1.PolicyRule{
			{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"services", "nodes"}},
			{Verbs: verbs, APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}},
		},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("role of the reader: %w", err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("role of the reader: %w", err)
	}
	return nil
}

// Admin returns the configuration of a client that may do everything.
func (s *Server) Admin() *rest.Config { return s.config(s.admin) }

// Reader returns the configuration of a client that may list and watch Services, EndpointSlices and Nodes.
func (s *Server) Reader() *rest.Config { return s.config(s.readers) }

func (s *Server) config(token string) *rest.Config {
	return &rest.Config{
		Host: "https://127.0.0.1:" + strconv.Itoa(s.port), BearerToken: token, QPS: -1,
		ContentConfig:   rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"},
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // its own certificate, on loopback
	}
}

// Restart kills the API server, and starts it again over the same etcd.
func (s *Server) Restart(ctx context.Context) error {
	s.api.kill()
	return s.startAPI(ctx)
}

// Stop kills both programs.
func (s *Server) Stop() {
	if s.api != nil {
		s.api.kill()
	}
	s.etcd.kill()
}

// process is a started program with its output in a file.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error // after ended
}

func start(dir, program string, args ...string) (*process, error) {
	name := filepath.Base(program)
	p := &process{cmd: exec.Command(program, args...), log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = log, log, dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel counts the thread that forks as the parent: it must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// lastWords returns the end of the log.
func (p *process) lastWords() string {
	const most = 2000
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-most):])
}

// freePorts returns free ports of loopback.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
