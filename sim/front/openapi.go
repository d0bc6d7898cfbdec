package front

import (
	"encoding/json"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// openAPI answers below /openapi/v3. kubectl asks there whether the server checks the fields of an object that is
// written. It does: it refuses the object. Without an answer, kubectl would not send it, and report a missing schema.
func openAPI(w http.ResponseWriter, path []string) error {
	if len(path) < 2 || path[1] != "v3" {
		return errNotFound()
	}
	type object = map[string]any
	paths := object{}
	of := strings.Join(path[2:], "/") // of one group and version; empty: all of them
	for _, gv := range groupVersions() {
		at := apiPath(gv)
		switch of {
		case "":
			paths[at] = object{"serverRelativeURL": "/openapi/v3/" + at}
		case at:
			for _, r := range resources {
				if r.GroupVersion() == gv {
					paths["/"+at+"/"+r.Resource+"/{name}"] = object{"patch": object{
						"parameters":                      []object{{"name": "fieldValidation", "in": "query", "schema": object{"type": "string"}}},
						"responses":                       object{},
						"x-kubernetes-group-version-kind": object{"group": gv.Group, "version": gv.Version, "kind": r.kind},
					}}
				}
			}
		}
	}
	if len(paths) == 0 {
		return errNotFound()
	}
	document := object{"paths": paths}
	if of != "" {
		document["openapi"], document["info"] = "3.0.0", object{"title": "synclab serve", "version": KubernetesVersion}
	}
	data, err := json.Marshal(document)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_, _ = w.Write(data)
	return nil
}

// apiPath is where the resources of a group and version are.
func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}
