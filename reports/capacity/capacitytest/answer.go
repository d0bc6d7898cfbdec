package capacitytest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"synclab/reports/capacity"
)

// Question of a cluster that shall grow twice, with every promise.
func Question() capacity.Question {
	return capacity.Question{
		Today:   capacity.Cluster{Services: 3000, Endpoints: 10, Nodes: 500, Churn: capacity.Churn{Endpoints: 10}},
		Growth:  capacity.Growth{Services: 2},
		Promise: capacity.Promise{ProgrammingP99: 3 * time.Second, FirstPacketP99: 100 * time.Microsecond, CPU: 0.5, Memory: 512 << 20, Start: 30 * time.Second},
		Length:  5 * time.Minute, // tests have no time for more
		Seed:    1,
	}
}

var askOnce = sync.OnceValues(func() (*capacity.Answer, error) {
	return capacity.Ask(context.Background(), Model(), Question(), nil)
})

// Answer to Question from Model. All callers share it: it is not to be changed.
func Answer() *capacity.Answer {
	a, err := askOnce()
	if err != nil {
		panic(fmt.Sprintf("capacitytest: %v", err))
	}
	return a
}
