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
		{"0,1312,903112745,-;watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [nft:4711]", Stall{Kind: SoftLockup, Seconds: 26, Task: "nft", Subject: "CPU#0 nft:4711"}},
		{"0,1312,903112745,-;watchdog: BUG: soft lockup - CPU#11 stuck for 23s! [nft]\n SUBSYSTEM=cpu\n", Stall{Kind: SoftLockup, Seconds: 23, Task: "nft", Subject: "CPU#11 nft"}},
		{"0,1,1,c;watchdog: BUG: soft lockup - CPU#3 stuck for 112s! [kworker/3:1:88]", Stall{Kind: SoftLockup, Seconds: 112, Task: "kworker/3:1", Subject: "CPU#3 kworker/3:1:88"}},
		{"0,7,2,-;NMI watchdog: Watchdog detected hard LOCKUP on cpu 2", Stall{Kind: HardLockup}},
		{"0,7,2,-;watchdog: CPU5: Watchdog detected hard LOCKUP on cpu 5", Stall{Kind: HardLockup}},
		{"3,8,2,-;INFO: task iptables-restor:812 blocked for more than 120 seconds.", Stall{Kind: HungTask, Seconds: 120, Task: "iptables-restor", Subject: "iptables-restor:812"}},
		{"3,8,2,-;INFO: task kworker/u8:2:81 blocked in I/O wait for more than 241 seconds.", Stall{Kind: HungTask, Seconds: 241, Task: "kworker/u8:2", Subject: "kworker/u8:2:81"}},
		{"3,9,2,-;rcu: INFO: rcu_preempt self-detected stall on CPU", Stall{Kind: RCUStall}},
		{"3,9,2,-;rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", Stall{Kind: RCUStall}},
		{"3,9,2,-;rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 0-....D } 21 jiffies s: 5 root: 0x1/.", Stall{Kind: RCUStall}},
		{"1,9,2,-;INFO: rcu_tasks detected stalls on tasks:", Stall{Kind: RCUStall}},
		{"0,9,2,-;BUG: workqueue lockup - pool cpus=1 node=0 flags=0x0 nice=0 stuck for 31s!", Stall{Kind: WorkStall, Seconds: 31, Subject: "cpus=1"}},
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
		if got.Text, got.At = "", 0; got != c.want {
			t.Errorf("%q: %+v, want %+v", c.record, got, c.want)
		}
	}
}

// The kernel reports a stall that lasts several times, with its whole time.
func TestContinues(t *testing.T) {
	const first = "0,1,100000000,-;watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [nft:4711]"
	for _, c := range []struct {
		what, record string
		want         bool
	}{
		{"longer", "0,9,126000000,-;watchdog: BUG: soft lockup - CPU#1 stuck for 48s! [nft:4711]", true},
		{"another CPU", "0,9,126000000,-;watchdog: BUG: soft lockup - CPU#2 stuck for 48s! [nft:4711]", false},
		{"another process", "0,9,126000000,-;watchdog: BUG: soft lockup - CPU#1 stuck for 48s! [nft:4712]", false},
		{"no longer", "0,9,126000000,-;watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [nft:4711]", false},
		{"one that began later", "0,9,400000000,-;watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [nft:4711]", false},
		{"another kind", "3,9,126000000,-;INFO: task nft:4711 blocked for more than 120 seconds.", false},
	} {
		before, ok := ParseStall(first)
		s, also := ParseStall(c.record)
		if !ok || !also || s.Continues(&before) != c.want {
			t.Errorf("%s: %+v continues %+v: %t, want %t", c.what, s, before, !c.want, c.want)
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
