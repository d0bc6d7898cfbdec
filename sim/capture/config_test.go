package capture

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// The configuration is taken under the names of kubeadm and of EKS, without the kubeconfig beside it. A cluster without
// it, or without the right to read it, is no error.
func TestProxyConfig(t *testing.T) {
	const cfg = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"
	configMap := func(name string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, UID: "some"}, Data: data}
	}
	for name, c := range map[string]struct {
		objects     []runtime.Object
		text, empty string
	}{
		"kubeadm": {[]runtime.Object{configMap("kube-proxy", map[string]string{"config.conf": cfg, "kubeconfig.conf": "server: https://hidden", "run.sh": "# hidden KubeProxyConfiguration"})}, "config.conf: |", ""},
		"EKS": {[]runtime.Object{configMap("kube-proxy", map[string]string{"kubeconfig": "server: https://hidden"}),
			configMap("kube-proxy-config", map[string]string{"config": cfg})}, "config: |", ""},
		"none": {nil, "", "no configmap of kube-proxy, kube-proxy-config in kube-system has one"},
	} {
		text, empty, err := ProxyConfig(t.Context(), fake.NewClientset(c.objects...))
		if err != nil || empty != c.empty || !strings.Contains(string(text), c.text) || strings.Contains(string(text), "hidden") || strings.Contains(string(text), "uid") {
			t.Errorf("%s: %v, %q\n%s", name, err, empty, text)
		}
	}
	client := fake.NewClientset()
	var answer error
	client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, answer })
	answer = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "kube-proxy", nil)
	if text, empty, err := ProxyConfig(t.Context(), client); err != nil || text != nil || !strings.HasPrefix(empty, "no right") {
		t.Errorf("forbidden: %q, %v", empty, err)
	}
	answer = errors.New("broken")
	if _, _, err := ProxyConfig(t.Context(), client); !errors.Is(err, answer) {
		t.Errorf("broken: %v", err)
	}
}
