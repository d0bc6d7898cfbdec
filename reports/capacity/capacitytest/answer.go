package capacitytest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"synclab/reports/capacity"
)

// Question is of a cluster that grows by a factor of 2, with all five SLOs.
func Question() capacity.Question {
	return capacity.Question{
		Today:  capacity.Cluster{Services: 3000, Endpoints: 10, Nodes: 500, Churn: capacity.Churn{Endpoints: 10}},
		Growth: capacity.Growth{Services: 2},
		SLOs:   capacity.SLOs{ProgrammingP99: 3 * time.Second, FirstPacketP99: 100 * time.Microsecond, CPU: 0.5, Memory: 512 << 20, Start: 30 * time.Second},
		Length: 5 * time.Minute, // short, for fast tests
		Seed:   1,
	}
}

var askOnce = sync.OnceValues(func() (*capacity.Answer, error) {
	return capacity.Ask(context.Background(), Model(), Question(), nil)
})

// Answer is the answer to Question from Model. All callers share it, and must not change it.
func Answer() *capacity.Answer {
	a, err := askOnce()
	if err != nil {
		panic(fmt.Sprintf("capacitytest: %v", err))
	}
	return a
}
