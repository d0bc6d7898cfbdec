package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// apiVersion and kind are the only ones that this package reads.
const (
	apiVersion = "kubeproxy.config.k8s.io/v1alpha1"
	kind       = "KubeProxyConfiguration"
)

// FieldError is one problem in one field. Without a file, File is empty and Line is 0. Line is also 0 when the file does
// not contain the field.
type FieldError struct {
	File   string
	Line   int
	Field  string // as in the file, e.g. iptables.masqueradeBit
	Reason string
}

// Error returns "file:line: field: reason" without the unknown parts.
func (e *FieldError) Error() string {
	text := e.Reason
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	switch {
	case e.File == "":
		return text
	case e.Line == 0:
		return e.File + ": " + text
	default:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, text)
	}
}

// New returns the configuration of an empty file: all defaults.
func New() *v1alpha1.KubeProxyConfiguration {
	cfg := &v1alpha1.KubeProxyConfiguration{}
	Default(cfg)
	return cfg
}

// LoadOptions are choices of Parse.
type LoadOptions struct {
	// Strict refuses what kube-proxy only warns of: unknown fields, and fields that are set twice.
	Strict bool
	// Minor is the minor version of kube-proxy that the file is for. 0: any.
	Minor int
}

// Parse reads the KubeProxyConfiguration in the text of a file, which messages name, sets defaults and validates. The file is YAML or JSON, as kube-proxy
// takes it, or has the configuration among other documents, or is the ConfigMap of a cluster. The error joins all
// problems, each a *FieldError. notes are what a user should know of settings that are accepted.
func Parse(file string, text []byte, o LoadOptions) (*v1alpha1.KubeProxyConfiguration, []string, error) {
	d, others, err := find(file, text)
	if err != nil {
		return nil, nil, err
	}
	if d.APIVersion != apiVersion {
		return nil, nil, d.problem(d.line("apiVersion"), "apiVersion", fmt.Sprintf("%q is not known; want %s", d.APIVersion, apiVersion))
	}
	cfg := &v1alpha1.KubeProxyConfiguration{}
	unknown, err := d.decode(cfg)
	if err != nil {
		return nil, nil, err
	}
	if o.Strict && len(unknown) > 0 {
		return nil, nil, problems(unknown).err()
	}
	Default(cfg)
	var p problems
	validate(&p, cfg, cfg.Mode)
	validateHiddenMetrics(&p, cfg, o.Minor)
	if len(p) > 0 {
		return nil, nil, p.placed(d).err()
	}
	var notes []string
	if len(others) > 0 {
		notes = append(notes, fmt.Sprintf("%s: left out%s", file, strings.Replace(seen(others), ", only", ":", 1)))
	}
	slices.SortStableFunc(unknown, func(a, b *FieldError) int { return a.Line - b.Line })
	for _, one := range unknown {
		notes = append(notes, one.Error()+" (kube-proxy only warns, too)")
	}
	return cfg, append(notes, remarks(d, cfg)...), nil
}

// problems are what is wrong with a configuration.
type problems []*FieldError

// err joins them into one error, one per line; nil: there are none.
func (p problems) err() error {
	errs := make([]error, len(p))
	for i, problem := range p {
		errs[i] = problem
	}
	return errors.Join(errs...)
}

// placed adds the file and the line of its field to each problem.
func (p problems) placed(d *document) problems {
	for _, problem := range p {
		problem.File, problem.Line = d.file, d.line(problem.Field)
	}
	return p
}

func (p *problems) add(field, reason string, args ...any) {
	*p = append(*p, &FieldError{Field: field, Reason: fmt.Sprintf(reason, args...)})
}
