package nftables

import (
	"encoding/binary"
	"fmt"
	"time"

	"synclab/proxier/kernel"
)

// mostLooked is the number of remembered clients up to which a partial sync reads them.
const mostLooked = 1 << 16

// inherit copies remembered clients from the tables that packets meet to the new one.
func (s *syncing) inherit(rules *Ruleset, e *encoder, others []string) error {
	for _, table := range others {
		elements, err := s.kernel.Elements(s.opts.Family, table, setAffinity.String())
		if err != nil {
			return err
		}
		e.limit = s.socket.split()
		for _, element := range elements {
			if !s.remembers(element) || rules.outlasts(element) {
				continue
			}
			// A rule that renews the element sets the time left, but not the timeout of its creation. The kernel
			// accepts no timeout that is shorter than the time left.
			left := time.Duration(element.Expires) * time.Millisecond
			e.addTimed(setAffinity, element.Key, element.Data, max(left, time.Duration(element.Timeout)*time.Millisecond), left)
		}
		err = e.commit()
		e.limit = 0
		if err != nil {
			e.reset(s.send)
			return err
		}
	}
	return nil
}

// remembers reports whether the element has the form of one of affinity.
func (s *syncing) remembers(e kernel.NftElement) bool {
	return len(e.Key) == setAffinity.keyLen(s.opts.Family) && len(e.Data) == setAffinity.valueLen(s.opts.Family)
}

// outlasts reports whether a client is remembered for longer than its Service port requires, or without a Service port.
func (r *Ruleset) outlasts(e kernel.NftElement) bool {
	entry := r.ids[clientOf(e)]
	return entry == nil || e.Expires > 1000*uint64(entry.port.AffinitySeconds)
}

// clientOf returns the Service port of a client.
func clientOf(e kernel.NftElement) ID { return ID(binary.BigEndian.Uint64(e.Key[len(e.Key)-8:])) }

// forget deletes clients of Service ports whose timeout became shorter, if they would be remembered for longer than
// that. Rules set a new time only at the client's next connection.
func (s *syncing) forget() error {
	if len(s.rules.shortened) == 0 {
		return nil
	}
	defer clear(s.rules.shortened)
	family, table := s.opts.Family, s.encoder.table
	sizes, err := s.kernel.ReportedSizes(family, table)
	if err != nil {
		return err
	}
	for _, size := range sizes {
		if size.Set == setAffinity.String() && (size.Elements < 0 || size.Elements > mostLooked) {
			return fmt.Errorf("set %s: %d clients (-1: unknown), more than %d", size.Set, size.Elements, mostLooked)
		}
	}
	elements, err := s.kernel.Elements(family, table, setAffinity.String())
	if err != nil {
		return err
	}
	var keys []byte
	for _, e := range elements {
		if s.remembers(e) && s.rules.shortened[clientOf(e)] && s.rules.outlasts(e) {
			keys = append(keys, e.Key...)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	written := s.encoder.written
	s.encoder.limit = s.socket.split()
	s.encoder.destroy(setAffinity, keys)
	err = s.encoder.commit()
	s.encoder.reset(s.send)
	s.encoder.written = written
	return err
}
