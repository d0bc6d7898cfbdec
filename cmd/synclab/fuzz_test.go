package main

import (
	"os"
	"path/filepath"
	"testing"

	"synclab/cmd/synclab/planning"
)

// FuzzTrace reads recorded traces from untrusted sources.
func FuzzTrace(f *testing.F) {
	f.Add([]byte(`{"op":"have","kind":"Service","object":{"metadata":{"name":"a","namespace":"b"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}}
{"op":"start"}
{"op":"update","kind":"Service","due":1000,"at":2000,"object":{"metadata":{"name":"a","namespace":"b"}}}
{"op":"delete","kind":"EndpointSlice","due":1000,"at":2000,"object":{"metadata":{"name":"a","namespace":"b","labels":{"kubernetes.io/service-name":"a"}}}}
`))
	f.Add([]byte(`{"op":"start"}` + "\n" + `{"op":"add","kind":"Node","object":null}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "trace.jsonl")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := planning.ReadTrace(t.Context(), path); err == nil {
			_ = r.String()
		}
	})
}
