package check

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/sync/errgroup"

	"synclab/bench/invariants"
	"synclab/bench/pass"
)

const (
	// mostAsked is the most health check NodePorts that a check asks, and askedAtOnce how many at the same time.
	mostAsked   = 2_000
	askedAtOnce = 16
	// longestBody bounds what is read of an answer.
	longestBody = 4 << 10
)

// askHealthPorts sends a request to each health check NodePort, at each address and family where it must answer.
func (r *Checks) askHealthPorts(ctx context.Context, e *invariants.Evidence) error {
	ports, err := e.HealthPorts()
	if err != nil {
		return err
	}
	ports = ports[:min(len(ports), mostAsked)]
	e.HealthAnswers = make([]invariants.HealthAnswer, len(ports))
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	for i, port := range ports {
		group.Go(func() error {
			e.HealthAnswers[i] = askHealth(ctx, port)
			return nil
		})
	}
	_ = group.Wait() // failures are answers
	if len(ports) > 0 && !e.AnswersHealth() && !r.noted {
		r.noted = true
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("I14 is not checked: %s is not known to serve health check NodePorts, and answers at none of %d", r.Subject, len(ports))})
	}
	return ctx.Err()
}

func askHealth(ctx context.Context, port invariants.HealthPort) invariants.HealthAnswer {
	answer := invariants.HealthAnswer{HealthPort: port}
	answer.Status, answer.Header, answer.Body, answer.Err = get(ctx, port.At.String())
	return answer
}

// get asks a health check, on a connection of its own.
func get(ctx context.Context, address string) (status int, header http.Header, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		return 0, nil, nil, err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, longestBody))
	return resp.StatusCode, resp.Header, body, err
}
