package config

import (
	"errors"
	"fmt"
	"os"

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

// Load reads a file (YAML or JSON), sets defaults and validates. Its error joins all problems, each a *FieldError.
// kube-proxy reads a file with unknown fields leniently. Load refuses it: with a misspelt setting, a measurement would
// measure something else than its configuration says.
func Load(path string) (*v1alpha1.KubeProxyConfiguration, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("proxy configuration: %w", err)
	}
	return parse(path, text)
}

// parse is Load without file access: file is only the name in errors.
func parse(file string, text []byte) (*v1alpha1.KubeProxyConfiguration, error) {
	cfg := &v1alpha1.KubeProxyConfiguration{}
	lines, err := decodeStrict(file, text, cfg)
	if err != nil {
		return nil, err
	}
	Default(cfg)
	if err := Validate(cfg); err != nil {
		return nil, placed(err, file, lines)
	}
	return cfg, nil
}

// placed adds the file and the line of its field to each problem of Validate.
func placed(err error, file string, lines map[string]int) error {
	var problems problems
	if !errors.As(err, &problems) {
		return err
	}
	for _, problem := range problems {
		problem.File, problem.Line = file, lines[problem.Field]
	}
	return problems
}

// problems joins several FieldErrors into one error, one per line.
type problems []*FieldError

func (p problems) Error() string { return errors.Join(p.Unwrap()...).Error() }

// Unwrap lets errors.As find a *FieldError.
func (p problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i, problem := range p {
		errs[i] = problem
	}
	return errs
}

func (p *problems) add(field, reason string, args ...any) {
	*p = append(*p, &FieldError{Field: field, Reason: fmt.Sprintf(reason, args...)})
}

// orNil returns nil for an empty list, which as an interface value would not be nil.
func (p problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}
