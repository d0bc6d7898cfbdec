package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// ineffective are the fields that are accepted and change less than one may expect, by reason. A name with a dot at its
// end stands for all fields below.
var ineffective = []struct {
	reason string
	fields []string
}{
	{"of Windows, without effect here", []string{"winkernel.", "windowsRunAsService"}},
	{"no proxy reads it any more", []string{"portRange"}},
	{"without effect in a network namespace: the size of the conntrack table belongs to the whole machine", []string{"conntrack.maxPerCore", "conntrack.min"}},
	{"only kube-proxy in mode ipvs reads it", []string{
		"ipvs.scheduler", "ipvs.excludeCIDRs", "ipvs.strictARP", "ipvs.tcpTimeout", "ipvs.tcpFinTimeout", "ipvs.udpTimeout"}},
	{"without effect on Synclab's own proxier", []string{
		"featureGates.", "logging.format", "logging.flushFrequency", "logging.vmodule", "logging.options.", "oomScoreAdj",
		"enableProfiling", "showHiddenMetricsForVersion"}},
}

// remarks returns what a user should know about accepted settings, one line for each reason.
func remarks(d *document, cfg *v1alpha1.KubeProxyConfiguration) (notes []string) {
	changed := Changed(cfg)
	for _, group := range ineffective {
		var fields []string
		for _, field := range changed {
			if named(group.fields, field) && field != "featureGates."+allowServiceExternalIPs {
				fields = append(fields, field)
			}
		}
		if len(fields) > 0 {
			notes = append(notes, fmt.Sprintf("%s: %s: %s", d.file, strings.Join(fields, ", "), group.reason))
		}
	}
	note := func(field, reason string, args ...any) {
		notes = append(notes, d.problem(d.line(field), field, fmt.Sprintf(reason, args...)).Error())
	}
	if slices.ContainsFunc(IgnoredGates(cfg), func(name string) bool { return name != "AllAlpha" && name != "AllBeta" }) {
		note("featureGates", "kube-proxy exits at a gate that its version does not have")
	}
	switch name := cfg.DetectLocal.InterfaceNamePrefix; {
	case cfg.DetectLocalMode != LocalModeInterfaceNamePrefix:
	case strings.HasSuffix(name, "+"):
		note("detectLocal.interfaceNamePrefix", "kube-proxy adds the + itself: %q matches only names that begin with %q", name, name)
	case !interfaceName.MatchString(name):
		note("detectLocal.interfaceNamePrefix", noInterface, name)
	}
	if name := cfg.DetectLocal.BridgeInterface; cfg.DetectLocalMode == LocalModeBridgeInterface && !interfaceName.MatchString(name) {
		note("detectLocal.bridgeInterface", noInterface, name)
	}
	return notes
}

// interfaceName: the kernel allows names of 15 bytes, without a slash or a blank.
var interfaceName = regexp.MustCompile(`^[^\s/+!]{1,15}$`)

const noInterface = "kube-proxy accepts %q, but no interface can have this name, and iptables and nft refuse it: no sync succeeds"

func named(names []string, field string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return name == field || strings.HasSuffix(name, ".") && strings.HasPrefix(field, name)
	})
}

// Changed returns the fields that differ from kube-proxy's defaults, sorted.
func Changed(cfg *v1alpha1.KubeProxyConfiguration) []string { return Differing(cfg, New()) }

// Differing returns the fields of a configuration that differ from another one's, sorted.
func Differing(cfg, other *v1alpha1.KubeProxyConfiguration) []string {
	have, usual := fieldsOf(cfg), fieldsOf(other)
	maps.DeleteFunc(have, func(field, value string) bool { return usual[field] == value })
	return slices.Sorted(maps.Keys(have))
}

// fieldsOf returns the values of all fields by path, as JSON. A list is one value.
func fieldsOf(cfg *v1alpha1.KubeProxyConfiguration) map[string]string {
	fields := map[string]string{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		if list, isList := value.([]any); isList && len(list) == 0 {
			value = nil
		}
		inside, isObject := value.(map[string]any)
		for key, value := range inside {
			walk(strings.TrimPrefix(path+"."+key, "."), value)
		}
		if text, err := json.Marshal(value); err == nil && !isObject {
			fields[path] = string(text)
		}
	}
	var root any
	if text, err := json.Marshal(cfg); err == nil && json.Unmarshal(text, &root) == nil {
		walk("", root)
	}
	return fields
}
