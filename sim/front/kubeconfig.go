package front

import (
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns a kubeconfig for a front. server is its URL, such as http://127.0.0.1:8001; credentials are what
// it requires, or nil.
func Kubeconfig(server string, credentials *Credentials) ([]byte, error) {
	const name = "synclab"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: server}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	if credentials != nil {
		c.Clusters[name].CertificateAuthorityData = credentials.CA
		c.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: credentials.Token} // sent by clients over TLS only
		c.Contexts[name].AuthInfo = name
	}
	c.CurrentContext = name
	return clientcmd.Write(*c)
}
