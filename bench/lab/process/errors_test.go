package process

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestErrorsOfALog(t *testing.T) {
	for _, c := range []struct {
		name, log string
		want      []string
	}{
		{"klog", "I1125 22:00:00.000001     123 server.go:1] \"Failed never\" err=null\n" +
			"W1125 22:00:00.000001     123 server.go:1] no mode\n" +
			"E1125 22:00:01.000002     123 proxier.go:765] \"Sync failed\" err=<\n\t/dev/stdin:12:1-2: Error: Could not process rule: Too many links\n >  retryingTime=\"30s\"\n" +
			"I1125 22:00:01.100000     123 server.go:1] fine\n\tsecond line with an error\n" +
			"E1125 22:00:02.000003     123 proxier.go:765] \"Sync failed\" err=<\n\t/dev/stdin:77:1-2: Error: Could not process rule: Too many links\n >  retryingTime=\"30s\"\n" +
			"F1125 22:00:03.000003     123 proxier.go:765] gone\n",
			[]string{"gone", `"Sync failed" err=< /dev/stdin:77:1-2: Error: Could not process rule: Too many links > retryingTime="30s" (2 times)`}},
		{"warnings only", "W1125 22:00:00.000001     1 a.go:1] no mode\nI1125 22:00:00.000001 1 a.go:1] x\n", []string{"no mode"}},
		{"another log", "starting\nlevel=info msg=\"error count\" n=0\nlevel=error msg=broken\n{\"level\":\"info\",\"msg\":\"failed 0\"}\nnft: cannot open\n", []string{"nft: cannot open", "level=error msg=broken"}},
		{"the last of many", func() (text string) {
			for i := range 40 {
				text += fmt.Sprintf("error of %c\n", 'a'+i%20)
			}
			return text
		}(), []string{"error of t", "error of s", "error of r"}},
		{"a line that does not end", "error " + strings.Repeat("x", 3*mostOfLine) + "\nerror here", []string{"error here", "error " + strings.Repeat("x", mostOfLine-6)}},
		{"an entry that does not end", "E1125 22:00:00.000001     1 a.go:1] first\n" + strings.Repeat("\tmore\n", 2*mostOfEntry), []string{"first" + strings.Repeat(" more", mostOfEntry-1)}},
		{"empty", "", nil},
	} {
		e := Errors{Most: 3}
		if err := e.Read(strings.NewReader(c.log)); err != nil || !slices.Equal(e.Lines(), c.want) {
			t.Errorf("%s: %v\n%q\nwant\n%q", c.name, err, e.Lines(), c.want)
		}
	}
}
