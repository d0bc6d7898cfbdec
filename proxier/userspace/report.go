package userspace

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Line is a line of JSON in Options.Report: the endpoints that new connections of a Service port get from now on.
type Line struct {
	// Started: a proxier has started. It has no Service ports yet, and the lines before are those of another.
	Started   bool            `json:"started,omitempty"`
	Family    corev1.IPFamily `json:"family"`
	Namespace string          `json:"namespace,omitempty"`
	Service   string          `json:"service,omitempty"`
	Port      string          `json:"port,omitempty"`
	Protocol  corev1.Protocol `json:"protocol,omitempty"`
	// Socket is the number of the port's socket, which its rules translate to; 0: the Service port is gone.
	Socket uint16 `json:"socket,omitempty"`
	// Cluster or Local are the endpoints ("ip:port"), sorted: those of the cluster, or those of this node.
	Cluster []string `json:"cluster,omitempty"`
	Local   []string `json:"local,omitempty"`
}

// Name returns the line's Service port.
func (l *Line) Name() tracker.ServicePortName {
	return tracker.ServicePortName{
		NamespacedName: types.NamespacedName{Namespace: l.Namespace, Name: l.Service},
		PortKey:        tracker.PortKey{Name: l.Port, Protocol: l.Protocol},
	}
}

func (b *Backend) line(name tracker.ServicePortName) Line {
	return Line{Family: b.settings.Family, Namespace: name.Namespace, Service: name.NamespacedName.Name, Port: name.Port(), Protocol: name.Protocol}
}

func (b *Backend) lineOf(p *port) Line {
	l := b.line(p.plan.Name)
	l.Socket = p.socket.Port()
	for _, endpoint := range endpointsOf(p.plan) {
		if p.plan.UsesClusterEndpoints() {
			l.Cluster = append(l.Cluster, endpoint.Text)
		} else {
			l.Local = append(l.Local, endpoint.Text)
		}
	}
	return l
}

// endpointsOf returns the endpoints of all traffic to a port, which has one socket.
func endpointsOf(p *plan.ServicePort) []*tracker.Endpoint {
	if p.UsesClusterEndpoints() {
		return p.Cluster
	}
	return p.Local
}

// report writes lines in one write, so that a reader sees each whole or not at all.
func (b *Backend) report(lines ...Line) error {
	if b.opts.Report == nil || len(lines) == 0 {
		return nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for i := range lines {
		if err := encoder.Encode(&lines[i]); err != nil {
			return fmt.Errorf("report of endpoints: %w", err)
		}
	}
	if _, err := b.opts.Report.Write(text.Bytes()); err != nil {
		return fmt.Errorf("report of endpoints: %w", err)
	}
	return nil
}
