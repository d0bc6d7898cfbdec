package direct

import (
	"sync"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel/xtables"
)

// The kernel does not number the versions of a table. To know one that we handed over when we see its sizes again, its
// last entry gets a pad: bytes that no packet meets. Whoever writes the table with iptables' library leaves the pad out,
// so that the table's size is another, by thousands of bytes more or less than by the rules he may have exchanged for as
// many others; whoever writes it with this package gives it another pad.
const (
	leastPad = 16 << 10
	mostPad  = 48 << 10 // an entry has at most 64 KiB
)

// nextPad is the pad of a table that follows one with such a pad.
func nextPad(pad int) int {
	if pad < leastPad || pad+xtables.Align > mostPad {
		return leastPad
	}
	return pad + xtables.Align
}

// smallTable is one of which two copies at a time matter to nobody, in bytes.
const smallTable = 16 << 20

// keeper keeps copies of the tables that were handed over: reading one costs the kernel nearly as much as replacing it.
// They are as large as the tables, which is what a sync needs at least anyway.
type keeper struct {
	mu     sync.Mutex
	tables map[iptables.Table]*xtables.Table
}

// take gives the copy of a table if the kernel still holds that one, and forgets it: it is going to be written over.
func (k *keeper) take(socket *xtables.Socket, table iptables.Table, room int) (*xtables.Table, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tables[table]
	if t == nil {
		return nil, nil
	}
	delete(k.tables, table)
	if size := len(t.Entries); size > smallTable && size < room {
		t.Close() // nearly all is going to be written anew: making room would cost a second table
		return nil, nil
	}
	info, err := socket.Info(string(table))
	if err == nil && info == t.Info {
		if err = t.MakeRoom(room); err == nil {
			return t, nil
		}
	}
	t.Close()
	return nil, err
}

func (k *keeper) keep(table iptables.Table, t *xtables.Table) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.tables[table]; old != nil {
		old.Close()
	}
	k.tables[table] = t
}

func (k *keeper) close() {
	for _, t := range k.tables {
		t.Close()
	}
}
