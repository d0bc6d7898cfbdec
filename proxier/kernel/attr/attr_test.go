package attr

import (
	"bytes"
	"slices"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	b := Append(nil, 1, []byte{1, 2, 3, 4, 5})
	b = AppendText(b, 2, "nat")
	b = AppendUint32(b, 3, 0x01020304)
	b = AppendUint64(b, 4, 5)
	b = Nest(b, 5, func(b []byte) []byte { return AppendText(b, 6, "inside") })
	var kinds []uint16
	var err error
	for a := range All(b, &err) {
		kinds = append(kinds, a.Type)
		switch a.Type {
		case 1:
			if !bytes.Equal(a.Value, []byte{1, 2, 3, 4, 5}) || len(a.Raw) != 9 {
				t.Errorf("bytes: %v", a)
			}
		case 2:
			if a.Text() != "nat" {
				t.Errorf("text: %v", a)
			}
		case 3:
			if a.Uint32() != 0x01020304 {
				t.Errorf("number: %v", a)
			}
		case 5:
			for in := range All(a.Value, &err) {
				if in.Type != 6 || in.Text() != "inside" {
					t.Errorf("nested: %v", in)
				}
			}
		}
	}
	if err != nil || !slices.Equal(kinds, []uint16{1, 2, 3, 4, 5}) {
		t.Errorf("types %v, %v", kinds, err)
	}
}

func TestTorn(t *testing.T) {
	whole := AppendText(nil, 1, "whole")
	for _, b := range [][]byte{append(slices.Clone(whole), 200, 0, 1, 0), append(slices.Clone(whole), 3, 0, 1, 0)} {
		n := 0
		var err error
		for range All(b, &err) {
			n++
		}
		if n != 1 || err == nil {
			t.Errorf("%v: %d attributes, %v", b, n, err)
		}
	}
}
