package config

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// The only file this package reads.
const (
	apiVersion = "kubeproxy.config.k8s.io/v1alpha1"
	kind       = "KubeProxyConfiguration"
)

// FieldError is one thing wrong in one field. File and Line are empty when the configuration came from no file, and
// Line is 0 when the file does not mention the field.
type FieldError struct {
	File   string
	Line   int
	Field  string // as in the file, e.g. iptables.masqueradeBit
	Reason string
}

// Error is file:line: field: reason, without the parts that are not known.
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

// Load reads the file (YAML or JSON), fills in defaults and validates. Its error joins every problem found, as
// *FieldError each. kube-proxy falls back to a lenient reading of a file with unknown fields; Load does not, because a
// measurement with a misspelt setting measures something else than it says.
func Load(path string) (*v1alpha1.KubeProxyConfiguration, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("proxy configuration: %w", err)
	}
	return parse(path, text)
}

// parse is Load without the disk: file only names the text in errors.
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

// placed gives each problem of Validate the file and the line of its field.
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

// problems are several FieldErrors as one error, a line each.
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

// orNil keeps a typed empty list from becoming a non-nil error.
func (p problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}
