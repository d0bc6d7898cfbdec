package capture

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"synclab/sim"
)

// configMaps are the names under which installers keep kube-proxy's configuration in kube-system: kubeadm's, and EKS's.
var configMaps = []string{"kube-proxy", "kube-proxy-config"}

// ProxyConfig returns the cluster's ConfigMap with kube-proxy's configuration as YAML, without its other texts, which may
// name the API server. empty is the reason if there is none.
func ProxyConfig(ctx context.Context, client kubernetes.Interface) (text []byte, empty string, err error) {
	for _, name := range configMaps {
		found, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return nil, fmt.Sprintf("no right to get configmap %s/%s", metav1.NamespaceSystem, name), nil
		case err != nil:
			return nil, "", fmt.Errorf("configmap %s/%s: %w", metav1.NamespaceSystem, name, err)
		}
		kept := &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
			Data:       maps.Clone(found.Data),
		}
		maps.DeleteFunc(kept.Data, func(_, text string) bool { return !sim.IsProxyConfig(text) })
		if len(kept.Data) > 0 {
			text, err := yaml.Marshal(kept)
			return text, "", err
		}
	}
	return nil, fmt.Sprintf("no configmap of %s in %s has one", strings.Join(configMaps, ", "), metav1.NamespaceSystem), nil
}
