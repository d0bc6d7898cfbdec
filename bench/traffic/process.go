package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"synclab/bench/lab/netns"
)

// Process is the parent's handle of the pods' process. Only one goroutine at a time may call Begin, Follow, Listen, End
// and Close.
type Process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	encoder *json.Encoder
	clock   monotonic
	stderr  strings.Builder
	done    chan struct{} // closed when the process has exited and all its messages were read
	obeyed  chan struct{} // the process has done what Listen or Place asked for
	looped  chan Looped

	mu      sync.Mutex
	results func(Result)
	ended   chan struct{} // of the running stream
	ready   chan struct{}
	err     error
}

// Start runs the process and waits until it listens on the ports.
func Start(ctx context.Context, pods *netns.Pods, ports []Port) (*Process, error) {
	p, err := start(ctx, pods, ports)
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	return p, nil
}

func start(ctx context.Context, pods *netns.Pods, ports []Port) (*Process, error) {
	client, err := pods.Client.File("client pods")
	if err != nil {
		return nil, err
	}
	defer client.Close()
	backends, err := pods.Backends.File("pods")
	if err != nil {
		return nil, err
	}
	defer backends.Close()
	p := &Process{done: make(chan struct{}), ready: make(chan struct{}), obeyed: make(chan struct{}, 1), looped: make(chan Looped, 1)}
	if p.clock, err = newMonotonic(); err != nil {
		return nil, err
	}
	p.cmd = exec.CommandContext(ctx, "/proc/self/exe")
	p.cmd.Env = append(os.Environ(), envChild+"=1", "GOGC=400")
	p.cmd.ExtraFiles = []*os.File{client, backends}
	p.cmd.Stderr = &p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.encoder = json.NewEncoder(p.in)
	go p.listen(out)
	if err := p.encoder.Encode(setup{Ports: ports}); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	select {
	case <-p.ready:
		return p, nil
	case <-p.done:
		return nil, p.Close()
	}
}

// listen reads the child's messages until it exits.
func (p *Process) listen(out io.Reader) {
	defer close(p.done)
	decoder := json.NewDecoder(out)
	for {
		var w word
		if err := decoder.Decode(&w); err != nil {
			return
		}
		p.mu.Lock()
		results, ended := p.results, p.ended
		if w.Failed != "" && p.err == nil {
			p.err = errors.New(w.Failed)
		}
		p.mu.Unlock()
		switch {
		case w.Ready:
			close(p.ready)
		case w.Obeyed:
			p.obeyed <- struct{}{}
		case w.Looped != nil:
			p.looped <- *w.Looped
		case w.Result != nil && results != nil:
			results(*w.Result)
		case w.Ended && ended != nil:
			close(ended)
		}
	}
}

// Begin starts a stream. results is called from one goroutine, in the order in which flows end.
func (p *Process) Begin(s Stream, results func(Result)) error {
	p.mu.Lock()
	p.results, p.ended = results, make(chan struct{})
	p.mu.Unlock()
	if err := p.encoder.Encode(command{Begin: &s}); err != nil {
		return p.broken(err)
	}
	return nil
}

// Follow adds targets to the running stream. focus are the numbers of targets that are about to change, seen of those
// whose change the kernel shows.
func (p *Process) Follow(add []Target, focus, seen []int) error {
	if len(add) == 0 && len(focus) == 0 && len(seen) == 0 {
		return nil
	}
	if err := p.encoder.Encode(command{Add: add, Focus: focus, Seen: seen}); err != nil {
		return p.broken(err)
	}
	return nil
}

// Listen makes the pods answer on more ports, and returns when they do.
func (p *Process) Listen(ports []Port) error {
	if len(ports) == 0 {
		return nil
	}
	return p.obey(command{Listen: ports})
}

// Place makes the pods answer on these CPUs only, and returns when they do.
func (p *Process) Place(cpus []int) error { return p.obey(command{CPUs: cpus}) }

// obey sends a command and waits until it is done.
func (p *Process) obey(c command) error {
	if err := p.encoder.Encode(c); err != nil {
		return p.broken(err)
	}
	select {
	case <-p.obeyed:
		return nil
	case <-p.done:
		return p.broken(errors.New("the pods' process exited"))
	}
}

// Loop runs a closed loop of connections, and returns when it is over.
func (p *Process) Loop(o Loop) (Looped, error) {
	if err := p.encoder.Encode(command{Loop: &o}); err != nil {
		return Looped{}, p.broken(err)
	}
	select {
	case done := <-p.looped:
		if done.Failed != "" {
			return done, errors.New(done.Failed)
		}
		return done, nil
	case <-p.done:
		return Looped{}, p.broken(errors.New("the pods' process exited"))
	}
}

// End stops the stream and returns when all of its results have been read.
func (p *Process) End() error {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	if err := p.encoder.Encode(command{End: true}); err != nil {
		return p.broken(err)
	}
	select {
	case <-ended:
	case <-p.done:
	}
	return p.broken(nil)
}

// broken returns the child's error, or else err.
func (p *Process) broken(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return fmt.Errorf("pods: %w", p.err)
	case err != nil:
		return fmt.Errorf("pods: %w", err)
	}
	return nil
}

// At converts a Result's time.
func (p *Process) At(ns int64) time.Time { return p.clock.at(ns) }

// Close ends the process. It returns an error if the process had failed or exited before.
func (p *Process) Close() error {
	_ = p.in.Close()
	<-p.done
	if err := p.cmd.Wait(); err != nil {
		if said := strings.TrimSpace(p.stderr.String()); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return p.broken(err)
	}
	return p.broken(nil)
}
