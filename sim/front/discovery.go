package front

import (
	"net/http"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// groupVersions lists the group versions of the resources, in order.
func groupVersions() []schema.GroupVersion {
	var all []schema.GroupVersion
	seen := map[schema.GroupVersion]bool{}
	for _, r := range resources {
		if gv := r.GroupVersion(); !seen[gv] {
			seen[gv] = true
			all = append(all, gv)
		}
	}
	return all
}

// mayAggregate accepts discovery in one response, which client-go requests first.
func mayAggregate(a accepted) bool {
	return a.parameters["as"] == "APIGroupDiscoveryList" && a.parameters["g"] == apidiscovery.GroupName && a.parameters["v"] == "v2" &&
		a.parameters["profile"] == "" && a.mediaType == runtime.ContentTypeJSON
}

// discover handles /api, /apis and the paths below them, except for the resources.
func (f *Front) discover(w http.ResponseWriter, r *http.Request, path []string) error {
	v, ok := negotiate(r, mayAggregate)
	if !ok {
		return errNotAcceptable()
	}
	legacy := path[0] == "api"
	var object runtime.Object
	switch {
	case len(path) == 1 && v.as != "":
		v.contentType += ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		object = aggregated(legacy)
	case len(path) == 1 && legacy:
		object = &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host}},
		}
	case len(path) == 1:
		groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, gv := range groupVersions() {
			if gv.Group != "" {
				groups.Groups = append(groups.Groups, apiGroup(gv))
			}
		}
		object = groups
	case len(path) == 2 && !legacy:
		for _, gv := range groupVersions() {
			if gv.Group == path[1] {
				group := apiGroup(gv)
				group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				object = &group
			}
		}
	default:
		object = resourceList(groupVersionOf(path))
	}
	if object == nil {
		return errNotFound()
	}
	write(w, r, v, http.StatusOK, object)
	return nil
}

// groupVersionOf reads the beginning of a path: api/VERSION or apis/GROUP/VERSION.
func groupVersionOf(path []string) schema.GroupVersion {
	if path[0] == "api" {
		return schema.GroupVersion{Version: path[1]}
	}
	return schema.GroupVersion{Group: path[1], Version: path[2]}
}

func apiGroup(gv schema.GroupVersion) metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	return metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
}

// resourceList is nil when there is no such group and version.
func resourceList(gv schema.GroupVersion) runtime.Object {
	l := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, r := range resources {
		if r.GroupVersion() == gv {
			l.APIResources = append(l.APIResources, metav1.APIResource{
				Name: r.Resource, SingularName: r.singular, Namespaced: r.namespaced, Kind: r.kind,
				Verbs: r.verbs(), ShortNames: r.shortNames, Categories: r.categories,
			})
		}
	}
	if len(l.APIResources) == 0 {
		return nil
	}
	return l
}

// aggregated returns the discovery of everything below /api or /apis.
func aggregated(legacy bool) runtime.Object {
	l := &apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscovery.SchemeGroupVersion.String()}}
	for _, gv := range groupVersions() {
		if legacy != (gv.Group == "") {
			continue
		}
		version := apidiscovery.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		for _, r := range resources {
			if r.GroupVersion() == gv {
				version.Resources = append(version.Resources, discovered(r))
			}
		}
		l.Items = append(l.Items, apidiscovery.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []apidiscovery.APIVersionDiscovery{version},
		})
	}
	return l
}

func discovered(r *resource) apidiscovery.APIResourceDiscovery {
	gvk := r.gvk()
	scope := apidiscovery.ScopeCluster
	if r.namespaced {
		scope = apidiscovery.ScopeNamespace
	}
	return apidiscovery.APIResourceDiscovery{
		Resource: r.Resource, Scope: scope, SingularResource: r.singular, ShortNames: r.shortNames, Categories: r.categories, Verbs: r.verbs(),
		ResponseKind: &metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
	}
}

// split divides a path into its parts.
func split(path string) []string {
	return strings.Split(strings.Trim(path, "/"), "/")
}
