package soak

import (
	"slices"

	"synclab/scenarios"
)

// simpler are edits that simplify a scenario's shape and settings. Each is repeated while it changes something and the scenario fails.
var simpler = []func(*scenarios.Scenario){
	func(s *scenarios.Scenario) { halveServices(s) },
	func(s *scenarios.Scenario) {
		s.Shape.Families, s.Shape.ServiceCIDRs, s.Shape.PodCIDRs = s.Shape.Families[:1], nil, nil
		s.Proxy.NodePortAddresses = nil
	},
	func(s *scenarios.Scenario) { s.Shape.Endpoints = scenarios.Endpoints{Count: 2} },
	func(s *scenarios.Scenario) { s.Shape.Ports = 1 },
	func(s *scenarios.Scenario) { s.Shape.Types = nil },
	func(s *scenarios.Scenario) { s.Shape.Protocols = nil },
	func(s *scenarios.Scenario) { s.Shape.ExternalIPs, s.Shape.SourceRanges = 0, 0 },
	func(s *scenarios.Scenario) { s.Shape.Affinity = 0 },
	func(s *scenarios.Scenario) { s.Shape.InternalLocal, s.Shape.ExternalLocal = 0, 0 },
	func(s *scenarios.Scenario) { s.Shape.WithoutEndpoint = 0 },
	func(s *scenarios.Scenario) { s.Shape.NotReady, s.Shape.Terminating = 0, 0 },
	func(s *scenarios.Scenario) { s.Shape.TopologyHints = 0 },
	func(s *scenarios.Scenario) { s.Shape.SharedPods, s.Shape.WithoutTargetRef = 0, 0 },
	func(s *scenarios.Scenario) { s.Shape.Namespaces = 1 },
	func(s *scenarios.Scenario) { s.Proxy.Policy, s.Proxy.Burst = "", 0 },
	func(s *scenarios.Scenario) {
		s.Proxy.MasqueradeAll, s.Proxy.LocalhostNodePorts, s.Proxy.NodePortAddresses = false, nil, nil
	},
}

// halveServices halves the number of Services, and the number in each create step.
func halveServices(s *scenarios.Scenario) {
	s.Shape.Services = max(1, s.Shape.Services/2)
	steps := slices.Clone(s.Steps)
	for i, step := range steps {
		if step.Create != nil && step.Create.Services > 1 {
			create := *step.Create
			create.Services /= 2
			steps[i] = scenarios.Step{Create: &create}
		}
	}
	s.Steps = steps
}

// simplifications returns all edits: one without effect gives a scenario that was tried before.
func simplifications(*scenarios.Scenario) []func(*scenarios.Scenario) { return simpler }

func simplified(s *scenarios.Scenario, edits []func(*scenarios.Scenario)) *scenarios.Scenario {
	candidate := *s
	for _, edit := range edits {
		edit(&candidate)
	}
	candidate.Fill()
	return &candidate
}
