package virtual

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
)

// Task is what a process of its own is to do: one seed.
type Task struct {
	Seed uint64 `json:"seed"`
	// Length is how much time passes, virtually.
	Length time.Duration `json:"length_ns"`
	// Minimize is how long, of real time, a broken promise's script is made shorter; 0: not at all.
	Minimize time.Duration `json:"minimize_ns"`
}

// Outcome of a Task.
type Outcome struct {
	Report Report `json:"report"`
	// Took is real time.
	Took time.Duration `json:"took_ns"`
	// Fewer Actions break the same promise; set when Minimize was asked for.
	Fewer []string `json:"fewer,omitempty"`
	Error string   `json:"error,omitempty"`
}

// Main does a Task, writes its Outcome as a line of JSON, and ends the process: virtual time belongs to package testing,
// which does not give control back.
func Main(task Task, out io.Writer) {
	if err := flag.CommandLine.Parse(nil); err != nil { // the flags of package testing, as they are
		panic(err)
	}
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "soak", F: func(t *testing.T) { os.Exit(do(t, task, out)) },
	}}, nil, nil)
}

func do(t *testing.T, task Task, out io.Writer) (status int) {
	began := time.Now()
	var o Outcome
	var err error
	o.Report, err = Run(t, task.Seed, task.Length)
	o.Took = time.Since(began)
	if v := o.Report.Violation; v != nil && err == nil && task.Minimize > 0 {
		var fewer []Action
		fewer, err = Minimize(t, task.Seed, task.Length, v, task.Minimize)
		at := time.Duration(0)
		for _, a := range fewer {
			at += a.After
			o.Fewer = append(o.Fewer, fmt.Sprintf("%v %s", at.Round(time.Millisecond), a))
		}
	}
	if err != nil {
		o.Error = err.Error()
	}
	if err := json.NewEncoder(out).Encode(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
