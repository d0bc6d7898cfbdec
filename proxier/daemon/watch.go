package daemon

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"synclab/proxier/config"
	"synclab/proxier/tracker"
)

// What kube-proxy 1.36 asks the API server for (cmd/kube-proxy/app/server.go, pkg/proxy/node.go): Services that have a
// cluster IP and are not left to another proxy, EndpointSlices that are not of headless Services, and its own Node.
const (
	serviceLabels = "!" + labelServiceProxyName
	serviceFields = "spec.clusterIP!=" + corev1.ClusterIPNone
	sliceLabels   = "!" + tracker.LabelHeadless

	labelServiceProxyName = "service.kubernetes.io/service-proxy-name"
)

// informers is a factory whose only informer so far is that of the Node. It asks nothing before it is started.
//
// What they store of Services and EndpointSlices are digests, a small part of the objects. The objects themselves are
// never there all at once: client-go streams the first list (WatchList) and digests each as it comes.
func (o *Options) informers() informers.SharedInformerFactory {
	digester := tracker.Digester{
		NodeName: o.Proxier.NodeName, Families: o.Proxier.Families, NoExternalIPs: !config.ExternalIPs(o.Proxier.Config),
	}
	factory := informers.NewSharedInformerFactoryWithOptions(o.Client, o.Proxier.Config.ConfigSyncPeriod.Duration,
		informers.WithTransform(digester.Transform))
	node := fields.OneTermEqualSelector(metav1.ObjectNameField, o.Proxier.NodeName).String()
	factory.InformerFor(&corev1.Node{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewFilteredNodeInformer(client, resync, cache.Indexers{}, func(list *metav1.ListOptions) {
			list.FieldSelector = node
		})
	})
	return factory
}

// selectServices gives the factory informers of Services and EndpointSlices that select as kube-proxy's do: whoever asks
// the factory for them gets these.
func selectServices(factory informers.SharedInformerFactory) {
	factory.InformerFor(&corev1.Service{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewFilteredServiceInformer(client, metav1.NamespaceAll, resync, cache.Indexers{}, func(list *metav1.ListOptions) {
			list.LabelSelector, list.FieldSelector = serviceLabels, serviceFields
		})
	})
	factory.InformerFor(&discoveryv1.EndpointSlice{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return discoveryinformers.NewFilteredEndpointSliceInformer(client, metav1.NamespaceAll, resync, cache.Indexers{}, func(list *metav1.ListOptions) {
			list.LabelSelector = sliceLabels
		})
	})
}
