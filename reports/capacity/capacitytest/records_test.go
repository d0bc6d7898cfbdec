package capacitytest

import (
	"math"
	"testing"

	"synclab/reports/model"
)

// The predictions of the model at another size agree with the formulas.
func TestModelFollowsItsLaws(t *testing.T) {
	for name, l := range Subjects() {
		s, err := Model().Subject(name)
		if err != nil {
			t.Fatal(err)
		}
		const services, endpoints = 3000, 10
		const n = services * endpoints
		elsewhere := map[model.Query]float64{
			{Kind: model.Full}:                      l.FullGo(services, n) + l.FullUser(services, n) + l.FullSys(services, n),
			{Kind: model.Partial}:                   l.PartialGo(services, n, 1) + l.PartialUser(services, n, 1) + l.PartialSys(services, n, 1),
			{Quantity: model.PeakRSS}:               l.RSS(services, n),
			{Quantity: model.FirstPacket}:           l.Packet(services),
			{Quantity: model.Rules}:                 l.Rules(services, n),
			{Quantity: model.CPU, Kind: model.Full}: 0.95*(l.FullGo(services, n)+l.FullUser(services, n)+l.FullSys(services, n)) + 0.002,
		}
		for q, want := range elsewhere {
			q.Services, q.Endpoints = services, endpoints
			p, err := s.Predict(q)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if math.Abs(p.Median/want-1) > 0.15 {
				t.Errorf("%s %+v: predicted %.4g, formula %.4g", name, q, p.Median, want)
			}
		}
	}
}
