package traffic

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	kernelns "github.com/vishvananda/netns"
)

// envChild makes this program the pods' process. It is checked in init, before main, so that test binaries and the
// command can be the pods' process without their own code for it.
const envChild = "SYNCLAB_PODS"

// The child's descriptors, besides standard input and output.
const (
	clientFD   = 3
	backendsFD = 4
)

func init() {
	if os.Getenv(envChild) == "" {
		return
	}
	if err := child(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pods:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child runs the pods' process. It ends at the end of its standard input.
func child(in io.Reader, out io.Writer) error {
	words := newWords(out)
	decoder := json.NewDecoder(in)
	var s setup
	if err := decoder.Decode(&s); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	clock, err := newMonotonic()
	if err != nil {
		return err
	}
	pods, err := newResponder()
	if err != nil {
		return err
	}
	go func() {
		defer close(pods.ended)
		inNamespace(backendsFD, words, pods.run)
	}()
	if err := pods.answerOn(s.Ports); err != nil {
		return err
	}
	words.say(word{Ready: true})
	var running *stream
	for {
		var c command
		switch err := decoder.Decode(&c); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("command: %w", err)
		case c.Begin != nil:
			if running, err = newStream(*c.Begin, clock, func(r Result) { words.say(word{Result: &r}) }); err != nil {
				return err
			}
			s := running
			go inNamespace(clientFD, words, func() error {
				err := s.run()
				words.say(word{Ended: true})
				return err
			})
		case c.Listen != nil:
			if err := pods.answerOn(c.Listen); err != nil {
				return err
			}
			words.say(word{Obeyed: true})
		case c.CPUs != nil:
			if err := pods.place(c.CPUs); err != nil {
				return err
			}
			words.say(word{Obeyed: true})
		case c.Loop != nil:
			looped, err := c.Loop.run(clock, int(pods.thread.Load()))
			if err != nil {
				looped.Failed = err.Error()
			}
			words.say(word{Looped: &looped})
		case running == nil:
		case c.End:
			running.end()
		default:
			running.inbox.put(c.Add, c.Focus, c.Seen)
		}
	}
}

// inNamespace calls f on a thread in a namespace, and reports an error to the parent.
func inNamespace(fd int, words *words, f func() error) {
	runtime.LockOSThread() // never unlocked: the thread stays in the namespace
	err := kernelns.Set(kernelns.NsHandle(fd))
	if err == nil {
		err = f()
	}
	if err != nil {
		words.say(word{Failed: err.Error()})
	}
}

// onClient calls f on a new thread in the clients' namespace.
func onClient(f func() error) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		err := kernelns.Set(kernelns.NsHandle(clientFD))
		if err == nil {
			err = f()
		}
		failed <- err
	}()
	return <-failed
}

// words are the child's messages, written a few times a second.
type words struct {
	mu      sync.Mutex
	buffer  *bufio.Writer
	encoder *json.Encoder
	timer   *time.Timer // nil if no message waits
}

const writeEvery = 50 * time.Millisecond

func newWords(w io.Writer) *words {
	buffer := bufio.NewWriterSize(w, 1<<16)
	return &words{buffer: buffer, encoder: json.NewEncoder(buffer)}
}

// say writes a message. Results wait for more results; all other messages are written at once. A write fails only if
// the parent has exited, and then standard input ends too.
func (w *words) say(what word) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.encoder.Encode(what)
	if what.Result == nil {
		_ = w.buffer.Flush()
		return
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(writeEvery, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.timer = nil
			_ = w.buffer.Flush()
		})
	}
}
