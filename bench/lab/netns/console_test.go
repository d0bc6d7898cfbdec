package netns

import (
	"strings"
	"testing"
)

// The worker's lines and the kernel's arrive apart, in whatever parts the console has them.
func TestConsole(t *testing.T) {
	const boots, ends = "[    0.000000] Linux version\r\n", "[   99.000000] reboot: System halted\r\n"
	const said = "violation: [1.5] of 3\r\n" + "[   12.345678] IPVS: rr: UDP 10.96.0.1:53 - no destination available\r\n" + "done\r\n[12345.000001] late\r\nno end"
	for size := 1; size < len(said); size += 7 {
		var worker, kernel strings.Builder
		c := &console{worker: &worker, kernel: &kernel}
		write := func(text string) {
			for len(text) > 0 {
				n := min(size, len(text))
				if _, err := c.Write([]byte(text[:n])); err != nil {
					t.Fatal(err)
				}
				text = text[n:]
			}
		}
		write(boots)
		c.pass(true)
		write(said)
		c.pass(false)
		write(ends)
		if want := "violation: [1.5] of 3\r\ndone\r\nno end"; worker.String() != want {
			t.Errorf("parts of %d bytes: worker %q, want %q", size, worker.String(), want)
		}
		if want := "[   12.345678] IPVS: rr: UDP 10.96.0.1:53 - no destination available\r\n[12345.000001] late\r\n"; kernel.String() != want {
			t.Errorf("parts of %d bytes: kernel %q, want %q", size, kernel.String(), want)
		}
		if tail := c.tail(); !strings.HasPrefix(tail, "[    0.000000]") || !strings.HasSuffix(tail, "System halted") {
			t.Errorf("tail %q", tail)
		}
	}
}
