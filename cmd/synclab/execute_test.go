package main

import (
	"testing"

	"github.com/spf13/cobra"
)

func TestAgainRepeatsEveryFlag(t *testing.T) {
	cmd := &cobra.Command{Use: "x"}
	flags := cmd.Flags()
	flags.Bool("bare", false, "")
	flags.Bool("on", true, "")
	flags.Bool("unset", true, "")
	flags.StringSlice("list", nil, "")
	flags.StringArray("each", nil, "")
	flags.Duration("for", 0, "")
	flags.Int("number", 0, "")
	flags.String("text", "", "")
	args := []string{"--bare", "--on=false", "--list", "a,b", "--list", "c", "--each", "x, y", "--each", "it's", "--for", "90s", "--number", "-3", "--text", ""}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	want := `synclab x y.yaml --bare --each 'x, y' --each 'it'\''s' --for 1m30s --list a,b,c --number -3 --on=false --text ''`
	if got := again(cmd, []string{"y.yaml"}); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	want = `synclab x --number 4 --bare --for 1m30s --list a,b,c --on=false --text ''`
	if got := again(cmd, nil, [2]string{"number", "4"}, [2]string{"each"}); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
