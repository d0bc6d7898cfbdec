package config

import (
	"reflect"
	"slices"

	"k8s.io/kube-proxy/config/v1alpha1"
	kjson "sigs.k8s.io/json"

	"synclab/internal/yamldoc"
)

// decode sets cfg from the document. unknown are the fields that a strict decoder refuses: unknown ones, and ones that
// are set twice, of which the last counts. kube-proxy goes on without the unknown ones.
func (d *document) decode(cfg *v1alpha1.KubeProxyConfiguration) (unknown []*FieldError, err error) {
	const twice = "is set twice, the last value counts"
	repeated := d.tree().Repeated(true)
	for _, key := range repeated {
		unknown = append(unknown, d.problem(d.lineOf(key.Line), key.Path, twice))
	}
	strict, err := kjson.UnmarshalStrict(d.json, cfg)
	if err != nil {
		return nil, d.wrongTypes(err).err()
	}
	for _, one := range strict {
		problem, path := yamldoc.StrictField(one)
		switch problem {
		case "unknown field":
			unknown = append(unknown, d.problem(d.line(path), path, problem))
		case "duplicate field":
			if len(repeated) == 0 { // of JSON that the YAML parser does not read
				unknown = append(unknown, d.problem(0, path, twice))
			}
		}
	}
	return unknown, nil
}

func (d *document) problem(line int, field, reason string) *FieldError {
	return &FieldError{File: d.file, Line: line, Field: field, Reason: reason}
}

// syntaxError places an error of the YAML parser.
func (d *document) syntaxError(err error) *FieldError {
	line, reason := yamldoc.Syntax(d.text, err)
	return d.problem(d.lineOf(line), "", reason)
}

// wrongTypes returns a problem for each value of a wrong type, or else the decoder's error.
func (d *document) wrongTypes(err error) (p problems) {
	for _, m := range yamldoc.Mismatches(d.json, reflect.TypeFor[v1alpha1.KubeProxyConfiguration]()) {
		p = append(p, d.problem(d.line(m.Path), m.Path, m.Text))
	}
	if len(p) == 0 {
		p = problems{d.problem(0, "", "a value is not of the type that kube-proxy wants: "+err.Error())}
	}
	slices.SortStableFunc(p, func(a, b *FieldError) int { return a.Line - b.Line })
	return p
}
