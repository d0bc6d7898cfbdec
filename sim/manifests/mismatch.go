package manifests

import (
	"reflect"

	"synclab/internal/yamldoc"
)

// strictFault returns the fault of an unknown field or a repeated one, with its place.
func (f *fragment) strictFault(object string, err error) *InputError {
	if problem, path := yamldoc.StrictField(err); path != "" {
		return f.fault(object, path, problem)
	}
	return f.fault(object, "", err.Error())
}

// typeFault returns the fault of the first value of the wrong type, with its place, or else the decoder's error.
func (f *fragment) typeFault(object string, t reflect.Type, err error) *InputError {
	if found := yamldoc.Mismatches(f.json, t); len(found) > 0 {
		return f.fault(object, found[0].Path, found[0].Text)
	}
	return f.fault(object, "", "a value is not of the type that the API wants: "+err.Error())
}
