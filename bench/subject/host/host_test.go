package host

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"synclab/bench/lab/netns"
	"synclab/bench/lab/shim"
	"synclab/bench/mirror"
	"synclab/bench/pass"
	"synclab/bench/subject"
	"synclab/bench/subject/visible"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

// The CPU time of changes does not include that of an earlier fault or probe.
func TestWorkIsThatOfTheChanges(t *testing.T) {
	fault, churn := scenarios.Step{Fault: &scenarios.Fault{}}, scenarios.Step{Churn: &scenarios.Churn{}}
	settle := scenarios.Step{Settle: &scenarios.Settle{}}
	for name, c := range map[string]struct {
		steps []*scenarios.Step
		want  []string // the work's step during each
	}{
		"changes":               {[]*scenarios.Step{&churn, &settle}, []string{"churn", "churn"}},
		"a fault and changes":   {[]*scenarios.Step{&fault, &churn, &settle}, []string{"fault", "churn", "churn"}},
		"faults and changes":    {[]*scenarios.Step{&fault, &fault, &churn, &churn}, []string{"fault", "fault", "churn", "churn"}},
		"a fault alone":         {[]*scenarios.Step{&fault, &settle}, []string{"fault", "fault"}},
		"nothing to settle for": {[]*scenarios.Step{&settle}, []string{"settle"}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1, 0)
			now := testclock.NewFakeClock(start)
			r := &Host{Env: &pass.Env{Clock: now}}
			var got []string
			for _, step := range c.steps {
				r.BeginWork(step, step.Kind())
				got = append(got, r.Work.step)
				now.Step(time.Second)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("work is of %v, want %v", got, c.want)
			}
			if !r.Work.Began.Equal(start) {
				t.Errorf("work began at %v, want %v", r.Work.Began, start)
			}
		})
	}
}

// A failure of an earlier step is not the reason why a later one does not converge. Settles and checks belong to the step
// before.
func TestFailuresAreThoseOfTheStep(t *testing.T) {
	r := &Host{Env: &pass.Env{Clock: testclock.NewFakeClock(time.Unix(1, 0))}}
	late := errors.New("not converged")
	for _, c := range []struct {
		step scenarios.Step
		want string
	}{
		{scenarios.Step{Fault: &scenarios.Fault{}}, "not converged; the subject reports: restore refused"},
		{scenarios.Step{Settle: &scenarios.Settle{}}, "not converged; the subject reports: restore refused"},
		{scenarios.Step{Check: &scenarios.Check{}}, "not converged; the subject reports: restore refused"},
		{scenarios.Step{Churn: &scenarios.Churn{}}, "not converged"},
		{scenarios.Step{Settle: &scenarios.Settle{}}, "not converged"},
	} {
		r.BeginWork(&c.step, c.step.Kind())
		if c.step.Fault != nil {
			r.failed.add("restore refused")
		}
		if got := r.Why(late).Error(); got != c.want {
			t.Errorf("after step %s: %q, want %q", c.step.Kind(), got, c.want)
		}
	}
}

// Every process gets its settings, and the scenario's policy overrides the subject's.
func TestSettingsReachTheProcess(t *testing.T) {
	for _, c := range []struct {
		subject, policy string
		args, env       []string
	}{
		{"synclab/nftables", "", []string{"--policy=completion-to-start", "--return-memory=false", "--families=IPv4"}, []string{"GOGC=100"}},
		{"synclab/nftables+tuned", "", []string{"--policy=token-bucket", "--return-memory=true"}, []string{"GOGC=50"}},
		{"synclab/nftables+tuned", "completion-to-start", []string{"--policy=completion-to-start"}, []string{"GOGC=50"}},
		{"kube-proxy/nftables+gogc70", "token-bucket", nil, []string{"GOGC=70"}},
	} {
		t.Setenv("GOMEMLIMIT", "1GiB")
		r := &Host{Env: &pass.Env{}, Harness: &Harness{}}
		r.Lab, r.Shim, r.World = &netns.Lab{Dir: t.TempDir()}, &shim.Shim{}, world.WorldOf(&sim.Objects{}, 1)
		r.Served = []corev1.IPFamily{corev1.IPv4Protocol}
		r.Config = subject.ProxyConfig(nil, &scenarios.Scenario{}, false)
		r.Scenario.Proxy.Policy = c.policy
		var err error
		if r.About, err = subject.Parse(c.subject); err != nil {
			t.Fatal(err)
		}
		_, args, env, err := r.command()
		if err != nil {
			t.Fatal(err)
		}
		all, set := strings.Join(args, " "), strings.Join(env, "\n")+"\n"
		for _, want := range c.args {
			if !strings.Contains(all, want) {
				t.Errorf("%s: no %s in %s", c.subject, want, all)
			}
		}
		for _, want := range c.env {
			if !strings.Contains(set, "\n"+want+"\n") {
				t.Errorf("%s: no %s in its environment", c.subject, want)
			}
		}
		if strings.Contains(set, "GOMEMLIMIT") {
			t.Errorf("%s has a memory limit", c.subject)
		}
	}
}

// A reverted change is no sample of network programming latency, but is recorded. A visible time known only from reading
// has its uncertainty.
func TestSightsAreRecordedForWhatTheyAre(t *testing.T) {
	var out bytes.Buffer
	h := &Host{Env: &pass.Env{Clock: clock.RealClock{}, Started: time.Now(), Messages: pass.NewMessageWriter(&out)}, Harness: &Harness{}}
	due := h.Started.Add(time.Second)
	change := mirror.Change{Number: 3, Op: sim.Update, Due: due}
	h.Visible(visible.VisibleChange{Change: change, Visible: due.Add(250 * time.Millisecond)})
	h.Visible(visible.VisibleChange{Change: change, Visible: due.Add(500 * time.Millisecond), Since: due.Add(250 * time.Millisecond)})
	h.Visible(visible.VisibleChange{Change: change, Visible: due.Add(125 * time.Millisecond), Undone: true})
	said := out.String()
	for _, want := range []string{
		`"metric":"network_programming_latency","value":0.25,"unit":"s","change":3}`,
		`"metric":"network_programming_latency","value":0.5,"unit":"s","change":3,"uncertainty":0.25}`,
		`"metric":"change_reverted","value":0.125,"unit":"s","change":3}`,
	} {
		if strings.Count(said, want) != 1 {
			t.Errorf("not once: %s\n%s", want, said)
		}
	}
	if n := strings.Count(said, `"network_programming_latency"`); n != 2 {
		t.Errorf("%d latencies, want 2:\n%s", n, said)
	}
}
