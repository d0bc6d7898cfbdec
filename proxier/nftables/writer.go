package nftables

import (
	"github.com/google/nftables/expr"
)

// writer takes changes of one table: the encoder for the kernel, and Model. Bytes are valid only during the call.
type writer interface {
	createTable()
	deleteTable()
	createSet(s set)
	// createChain makes a chain; hook nil: one that others jump to.
	createChain(name string, hook *hook)
	deleteChain(name string)
	// flush deletes all rules of a chain.
	flush(chain string)
	rule(chain string, exprs []expr.Any)
	// add puts elements into a set that holds no verdicts: keys, each followed by its value.
	add(s set, elements []byte)
	addVerdict(s set, key []byte, v expr.Verdict)
	// remove takes elements out: keys only.
	remove(s set, keys []byte)
	// commit ends a transaction.
	commit() error
}

// hook is where a base chain is called from.
type hook struct {
	typ      string // "nat" or "filter"
	number   uint32 // NF_INET_*
	priority int32
}
