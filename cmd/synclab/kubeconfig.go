package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clusterFlags name a cluster as kubectl does.
type clusterFlags struct {
	kubeconfig string // empty: $KUBECONFIG, then ~/.kube/config
	context    string // empty: the file's current one
	// allowExec lets root run the kubeconfig's credential plugin.
	allowExec bool
}

func (f *clusterFlags) registerExec(flags *pflag.FlagSet) {
	flags.BoolVar(&f.allowExec, "allow-exec-plugins", false, "as root too, run the program that the kubeconfig names for credentials")
}

// restConfig reads the kubeconfig. Errors are usage errors.
func (f clusterFlags) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	rules.WarnIfAllMissing = false
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, badInput(fmt.Errorf("kubeconfig: %w", err))
	case clientcmd.IsEmptyConfig(err):
		where := f.kubeconfig
		if where == "" {
			where = os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
		}
		if where == "" {
			return nil, badInput(errors.New("kubeconfig: none is given, $KUBECONFIG is not set, and there is no ~/.kube/config; name one with --kubeconfig FILE"))
		}
		return nil, badInput(fmt.Errorf("kubeconfig: %s names no cluster", where))
	case err != nil:
		return nil, badInput(fmt.Errorf("kubeconfig: %w", err))
	}
	if cfg.ExecProvider != nil && os.Geteuid() == 0 && !f.allowExec {
		return nil, badInput(fmt.Errorf("kubeconfig: its credential plugin %q would run as root: allow that with --allow-exec-plugins, or run synclab as another user", cfg.ExecProvider.Command))
	}
	return cfg, nil
}

// newClient uses contentType, or JSON if the server does not support it.
func newClient(cfg *rest.Config, contentType string) (kubernetes.Interface, error) {
	cfg.ContentType = contentType
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, badInput(fmt.Errorf("kubeconfig: %w", err))
	}
	return client, nil
}

// client returns a client that reads the cluster in protobuf.
func (f clusterFlags) client() (kubernetes.Interface, error) {
	cfg, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = -1, -1 // three lists and three watches
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return newClient(cfg, "application/vnd.kubernetes.protobuf")
}
