package front

import (
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is the file that points clients at a front: server is its URL, such
// as http://127.0.0.1:8001. Nobody needs to say who they are.
func Kubeconfig(server string) ([]byte, error) {
	const name = "synclab"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: server}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	c.CurrentContext = name
	return clientcmd.Write(*c)
}
