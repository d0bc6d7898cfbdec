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

	"synclab/proxier/tracker"
)

// The selectors of kube-proxy 1.36 (cmd/kube-proxy/app/server.go, pkg/proxy/node.go): Services with a cluster IP and
// without the label of another proxy, EndpointSlices of Services that are not headless, and its own Node.
const (
	serviceLabels = "!" + labelServiceProxyName
	serviceFields = "spec.clusterIP!=" + corev1.ClusterIPNone
	sliceLabels   = "!" + tracker.LabelHeadless

	labelServiceProxyName = "service.kubernetes.io/service-proxy-name"
)

// informers returns a factory with only the Node's informer. Nothing is requested before it is started. Its informers
// store digests of Services and EndpointSlices, a small part of the objects. All objects are never in memory together:
// client-go streams the first list (WatchList) and digests each object on arrival.
func (o *Options) informers() informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactoryWithOptions(o.Client, o.Proxier.Config.ConfigSyncPeriod.Duration,
		informers.WithTransform(o.Proxier.Digester().Transform))
	node := fields.OneTermEqualSelector(metav1.ObjectNameField, o.Proxier.NodeName).String()
	factory.InformerFor(&corev1.Node{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewFilteredNodeInformer(client, resync, cache.Indexers{}, func(list *metav1.ListOptions) {
			list.FieldSelector = node
		})
	})
	return factory
}

// selectServices adds informers of Services and EndpointSlices with kube-proxy's selectors to the factory. Later
// requests for such informers return these.
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
