package kernel

import (
	"os/exec"
	"strings"
	"testing"

	"synclab/bench/lab/netns"
)

func TestAccountsCount(t *testing.T) {
	netns.Fresh(t)
	if _, ok := Accounted("invalid"); ok {
		t.Fatal("an object exists that no process created")
	}
	for range 2 { // the second time it is there already
		if err := EnsureAccounts("invalid", "other"); err != nil {
			t.Skip(err)
		}
	}
	if n, ok := Accounted("invalid"); !ok || n != 0 {
		t.Fatalf("new object: %d, %v", n, ok)
	}
	x := tools()[0]
	x.restore(t, "*filter\n-A OUTPUT -m nfacct --nfacct-name invalid\nCOMMIT\n")
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Skip(strings.TrimSpace(string(out)))
	}
	_ = exec.Command("bash", "-c", "echo x > /dev/udp/127.0.0.1/9").Run()
	if n, ok := Accounted("invalid"); !ok || n == 0 {
		t.Errorf("after a packet: %d, %v", n, ok)
	}
	if n, _ := Accounted("other"); n != 0 {
		t.Errorf("the other object counted %d", n)
	}
}
