package check

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"synclab/bench/pass"
	"synclab/bench/verify/invariants"
)

const (
	// mostAsked is the most health check NodePorts that a check asks, and askedAtOnce how many at the same time. It stops
	// after mostSilent without an answer: if packets are dropped, each takes its whole time.
	mostAsked   = 2_000
	mostSilent  = 32
	askedAtOnce = 16
	// longestBody bounds what is read of an answer.
	longestBody = 4 << 10
)

// askHealthPorts sends a request to each health check NodePort, at each address and family where it must answer, within
// bounds.
func (r *Checks) askHealthPorts(ctx context.Context, e *invariants.Evidence) error {
	ports, err := e.HealthPorts()
	if err != nil {
		return err
	}
	e.HealthAnswers = askAll(spread(ports, mostAsked, e.Seed), func(port invariants.HealthPort) invariants.HealthAnswer { return askHealth(ctx, port) })
	if err := ctx.Err(); err != nil || len(ports) == 0 {
		return err
	}
	note := askedText(len(e.HealthAnswers), len(ports))
	if !e.AnswersHealth() {
		note = fmt.Sprintf("I14 is not checked: %s is not known to serve health check NodePorts, and answers at none of %d", r.Subject, len(e.HealthAnswers))
	}
	if note != "" && note != r.noted { // a check asks several times
		r.noted = note
		r.Messages.Send(pass.Message{Note: note})
	}
	return nil
}

// spread chooses some of the health check NodePorts, in the order to ask them: first one address of each Service, another
// one for each in turn, then their next addresses. The order of the Services is random. Those of a Service are next to each
// other in ports.
func spread(ports []invariants.HealthPort, most int, seed uint64) (chosen []invariants.HealthPort) {
	var services [][]invariants.HealthPort
	for i, port := range ports {
		if i == 0 || port.Service != ports[i-1].Service {
			services = append(services, nil)
		}
		services[len(services)-1] = append(services[len(services)-1], port)
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(services), func(i, j int) { services[i], services[j] = services[j], services[i] })
	most = min(most, len(ports))
	for round := 0; len(chosen) < most; round++ {
		for i, own := range services {
			if round < len(own) && len(chosen) < most {
				chosen = append(chosen, own[(i+round)%len(own)])
			}
		}
	}
	return chosen
}

// askAll asks until mostSilent gave no answer, and returns the answers of those that were asked.
func askAll(ports []invariants.HealthPort, ask func(invariants.HealthPort) invariants.HealthAnswer) []invariants.HealthAnswer {
	answers, asked := make([]invariants.HealthAnswer, len(ports)), 0
	var silent atomic.Int32
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	for i, port := range ports {
		if silent.Load() >= mostSilent {
			break
		}
		asked++
		group.Go(func() error {
			if answers[i] = ask(port); answers[i].Err != nil {
				silent.Add(1)
			}
			return nil
		})
	}
	_ = group.Wait() // failures are answers
	return answers[:asked]
}

// askedText says why not all were asked; empty: all were.
func askedText(asked, all int) string {
	why := fmt.Sprintf("a check asks %d at most", mostAsked)
	switch {
	case asked >= all:
		return ""
	case asked < min(all, mostAsked):
		why = fmt.Sprintf("%d gave no answer, and the others were not asked", mostSilent)
	}
	return fmt.Sprintf("I14 is checked at %d of %d health check NodePorts and addresses: %s", asked, all, why)
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
