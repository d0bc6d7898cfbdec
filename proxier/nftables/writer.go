package nftables

import (
	"github.com/google/nftables/expr"
)

// writer takes changes of one table: the encoder for the kernel, and Model. Bytes are valid only during the call.
type writer interface {
	createTable()
	deleteTable()
	createSet(s set)
	// createChain creates a chain; hook nil: it is no base chain.
	createChain(name string, hook *hook)
	deleteChain(name string)
	// flush deletes all rules of a chain.
	flush(chain string)
	rule(chain string, exprs []expr.Any)
	// add adds elements to a set without verdicts: keys, each followed by its value.
	add(s set, elements []byte)
	addVerdict(s set, key []byte, v expr.Verdict)
	// remove deletes elements: keys only.
	remove(s set, keys []byte)
	// commit ends a transaction.
	commit() error
}

// hook is where the kernel calls a base chain.
type hook struct {
	typ      string // "nat" or "filter"
	number   uint32 // NF_INET_*
	priority int32
}
