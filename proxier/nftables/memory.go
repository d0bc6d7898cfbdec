package nftables

import (
	"encoding/binary"
	"fmt"
	"time"

	"synclab/proxier/kernel"
)

// mostLooked is how many remembered clients are looked through in a partial sync.
const mostLooked = 1 << 16

// inherit copies what clients are remembered by from the table that packets meet to the new one.
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
			// A rule that renews it sets what is left, but not the timeout it was made with. The kernel takes none
			// that is shorter than what is left.
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

// remembers: the element has the form of one of affinity.
func (s *syncing) remembers(e kernel.NftElement) bool {
	return len(e.Key) == setAffinity.keyLen(s.opts.Family) && len(e.Data) == setAffinity.valueLen(s.opts.Family)
}

// outlasts: a client is remembered for longer than his Service port wants, or for none that there is.
func (r *Ruleset) outlasts(e kernel.NftElement) bool {
	entry := r.ids[clientOf(e)]
	return entry == nil || e.Expires > 1000*uint64(entry.port.AffinitySeconds)
}

// clientOf gives whose client it is.
func clientOf(e kernel.NftElement) ID { return ID(binary.BigEndian.Uint64(e.Key[len(e.Key)-8:])) }

// forget drops clients of Service ports whose timeout has become shorter, if they would be remembered for longer than
// that. Rules only set the time anew when the client comes back.
func (s *syncing) forget() error {
	if len(s.rules.shortened) == 0 {
		return nil
	}
	defer clear(s.rules.shortened)
	family, table := s.opts.Family, s.encoder.table
	sizes, err := s.kernel.ToldSizes(family, table)
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
