package machine

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Each kind of stall is found, and no other message: a process that repeats the kernel's words puts its name first.
func TestParseStall(t *testing.T) {
	for _, c := range []struct {
		record string
		want   Stall
	}{
		{"0,1312,903112745,-;watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [nft:4711]", Stall{SoftLockup, 26, "nft", ""}},
		{"0,1312,903112745,-;watchdog: BUG: soft lockup - CPU#11 stuck for 23s! [nft]\n SUBSYSTEM=cpu\n", Stall{SoftLockup, 23, "nft", ""}},
		{"0,1,1,c;watchdog: BUG: soft lockup - CPU#3 stuck for 112s! [kworker/3:1:88]", Stall{SoftLockup, 112, "kworker/3:1", ""}},
		{"0,7,2,-;NMI watchdog: Watchdog detected hard LOCKUP on cpu 2", Stall{Kind: HardLockup}},
		{"0,7,2,-;watchdog: CPU5: Watchdog detected hard LOCKUP on cpu 5", Stall{Kind: HardLockup}},
		{"3,8,2,-;INFO: task iptables-restor:812 blocked for more than 120 seconds.", Stall{HungTask, 120, "iptables-restor", ""}},
		{"3,8,2,-;INFO: task kworker/u8:2:81 blocked in I/O wait for more than 241 seconds.", Stall{HungTask, 241, "kworker/u8:2", ""}},
		{"3,9,2,-;rcu: INFO: rcu_preempt self-detected stall on CPU", Stall{Kind: RCUStall}},
		{"3,9,2,-;rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", Stall{Kind: RCUStall}},
		{"3,9,2,-;rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 0-....D } 21 jiffies s: 5 root: 0x1/.", Stall{Kind: RCUStall}},
		{record: "14,10,2,-;some-daemon[81]: watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [nft:4711]"},
		{record: "6,10,2,-;nft: a message about something else"},
		{record: "4,10,2,-;workqueue: foo hogged CPU for >10000us 4 times"},
		{record: "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [no head:1]"},
		{record: ""},
	} {
		got, ok := ParseStall(c.record)
		if ok != (c.want.Kind != "") || ok && got.Text == "" {
			t.Errorf("%q: %+v, %t", c.record, got, ok)
		}
		if got.Text = ""; got != c.want {
			t.Errorf("%q: %+v, want %+v", c.record, got, c.want)
		}
	}
}

// The log is read without waiting, and record by record.
func TestKernelLog(t *testing.T) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[1])
	log := &KernelLog{ends[0]}
	defer log.Close()
	for _, want := range []int{0, 1, 0} {
		if want > 0 {
			if _, err := unix.Write(ends[1], []byte("0,5,1,-;watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [nft:1]")); err != nil {
				t.Fatal(err)
			}
		}
		if found, err := log.Stalls(); len(found) != want || err != nil {
			t.Errorf("%+v, %v; want %d", found, err, want)
		}
	}
	if log, err := OpenKernelLog(); err != nil {
		if !strings.Contains(err.Error(), "/dev/kmsg") {
			t.Error(err)
		}
	} else if _, err := log.Stalls(); err != nil { // from the end: perhaps none, perhaps the machine's
		t.Error(errors.Join(err, log.Close()))
	}
}
