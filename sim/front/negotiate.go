package front

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// The codecs know all kinds that client-go knows, and those that only a server makes (Table, PartialObjectMetadata).
// Lists are written item by item: their items are encoded already.
var (
	scheme             = newScheme()
	codecs             = serializer.NewCodecFactory(scheme, serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
	jsonSerializer     = serializerOf(runtime.ContentTypeJSON).Serializer
	protobufSerializer = serializerOf(runtime.ContentTypeProtobuf).Serializer
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return s
}

func serializerOf(mediaType string) runtime.SerializerInfo {
	found, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		panic("front: no codec for " + mediaType)
	}
	return found
}

// view is the form in which a client gets its response.
type view struct {
	runtime.SerializerInfo
	// as is "", "Table" or "PartialObjectMetadata"; for discovery
	// "APIGroupDiscoveryList".
	as string
	// contentType is the Content-Type header of the response.
	contentType string
}

// accepted is one entry of an Accept header.
type accepted struct {
	mediaType  string
	parameters map[string]string
	quality    float64
}

// parseAccept sorts the entries of Accept headers by preference.
func parseAccept(headers []string) []accepted {
	var entries []accepted
	for _, header := range headers {
		for entry := range strings.SplitSeq(header, ",") {
			mediaType, parameters, err := mime.ParseMediaType(strings.TrimSpace(entry))
			if err != nil {
				continue // as the API server: ignore what cannot be parsed
			}
			quality := 1.0
			if q, err := strconv.ParseFloat(parameters["q"], 64); err == nil {
				quality = q
			}
			if quality > 0 {
				entries = append(entries, accepted{mediaType, parameters, quality})
			}
		}
	}
	slices.SortStableFunc(entries, func(a, b accepted) int { return cmp.Compare(b.quality, a.quality) })
	return entries
}

// negotiate returns the first view that the client accepts and the server has. may reports whether the endpoint offers
// a conversion; if it does not, the next entry is tried.
func negotiate(r *http.Request, may func(a accepted) bool) (view, bool) {
	entries := parseAccept(r.Header.Values("Accept"))
	if len(entries) == 0 {
		entries = []accepted{{mediaType: "*/*"}}
	}
	for _, a := range entries {
		if a.mediaType == "*/*" || a.mediaType == "application/*" {
			a.mediaType = runtime.ContentTypeJSON
		}
		found, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), a.mediaType)
		if !ok || a.parameters["as"] != "" && !may(a) {
			continue
		}
		return view{SerializerInfo: found, as: a.parameters["as"], contentType: found.MediaType}, true
	}
	return view{}, false
}

// mayPlain accepts no conversion.
func mayPlain(accepted) bool { return false }

// mayConvert accepts the conversions that every resource has. A Table has no protobuf.
func mayConvert(a accepted) bool {
	switch {
	case a.parameters["g"] != metav1.GroupName || a.parameters["v"] != "v1":
		return false
	case a.parameters["as"] == "Table":
		return a.mediaType != runtime.ContentTypeProtobuf
	default:
		return a.parameters["as"] == "PartialObjectMetadata" || a.parameters["as"] == "PartialObjectMetadataList"
	}
}
