package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"synclab/bench/verify/invariants"
)

// mutation names a test that breaks what a check verifies, and expects the check to fail.
type mutation struct{ check, dir, test string }

// mutations has a mutation for every check in the lab. Grouped checks are listed by group; the test enumerates a group's
// checks from the code.
var mutations = []mutation{
	{"violation", "bench/verify/soak", "TestJudge"},
	{"misrouted", "bench/verify/soak", "TestJudge"},
	{"lost", "bench/verify/soak", "TestJudge"},
	{"unsettled", "bench/verify/soak", "TestJudgeOfASubjectThatDoesNotSettle"},
	{"broken", "bench/verify/soak", "TestJudge"},

	{"invariants, on evidence", "bench/verify/invariants", "TestBrokenEvidence"},
	{"invariants, where evidence is missing", "bench/verify/invariants", "TestMissingEvidence"},
	{"invariants, of a subject that is not known", "bench/verify/invariants", "TestUnknownSubject"},
	{"invariants, in the kernel", "bench/verify/invariants", "TestKernelIsFoundBroken"},
	{"invariants, flows of a stream", "bench/verify/check", "TestFlowsCountForInvariants"},
	{"invariants, in a run: a flush", "cmd/synclab", "TestCheckFindsAFlush"},
	{"invariants, in a run: a broken restore", "cmd/synclab", "TestCheckFindsABrokenRestore"},
	{"conform: every rule counts", "bench/verify/conform", "TestDiffSeesEveryRule"},
	{"conform: order counts where it matters", "bench/verify/conform", "TestDiffAndOrder"},
	{"conform: differences that no entry predicts", "bench/verify/conform", "TestEntriesExplainNothingElse"},
	{"rules: text that is not understood", "proxier/iptables/rule", "TestParseTablesErrors"},
	{"verdicts: a rule taken away shows", "bench/internal/verdictstest", "TestPopulationMeetsRules"},
	{"ledger: flows that go astray", "bench/traffic", "TestOldAndNew"},
	{"ledger: flows without an answer", "bench/traffic", "TestUnanswered"},
	{"ledger: held flows that are cut", "bench/traffic", "TestHeldFlowIsCutOnce"},
	{"ledger: endpoints that come late", "bench/traffic", "TestAddedNotYet"},
	{"ledger, in the kernel", "bench/traffic", "TestWrongRulesAreFoundOut"},
	{"ledger: a busy machine is no violation", "bench/verify/check", "TestBusyMachineIsNoViolation"},
	{"verdicts: packets that loop", "bench/probe", "TestJudgeHops"},
	{"verdicts: packets that loop, in the kernel", "bench/probe", "TestHopsInTheKernel"},
	{"verdicts: unequal shares", "reports", "TestUnequalShares"},
	{"stalls: the kernel's log", "bench/lab/machine", "TestParseStall"},
	{"stalls: the verdict", "reports", "TestStalls"},
	{"visible: every reader, where rules are flushed", "bench/subject/visible", "TestRandomChurn"},
	{"visible: what is missing", "bench/subject/visible", "TestErrorsSayWhatIsMissing"},
	{"visible: how long it has been missing", "bench/subject/visible", "TestMissingSinceTheOldestChange"},
	{"virtual: every check", "bench/internal/virtualtest", "TestBrokenChecks"},
	{"doctor: every check", "bench/lab/machine", "TestExamineBroken"},
	{"doctor: go and kube-proxy", "bench/lab/machine", "TestExamineKubeProxy"},
	{"doctor: cache folder", "bench/lab/machine", "TestExamineCache"},
	{"drift: whatever others do to tables", "proxier", "TestDrift"},
	{"drift: layout tree", "proxier", "TestTreeDrift"},
	{"drift: large clusters", "proxier", "TestDriftInLargeCluster"},
	{"diff: the exit status", "cmd/synclab", "TestDiffStatus"},
	{"targets: every verdict", "reports", "TestTargets"},
	{"plan: a limit that moves", "bench/search", "TestNoise"},
	{"random tests: packages without any", "scripts/random", "TestNoRandomTests"},
	{"skips: one that is not allowed", "scripts/gotest", "TestReader"},
	{"closed form: rules that the kernel does not have", "reports", "TestRuleMismatch"},
}

// Every mutation's test exists, and every check in the code has a mutation.
func TestEveryCheckHasAMutation(t *testing.T) {
	tests := map[string][]string{}
	checks := map[string]bool{}
	for _, m := range mutations {
		if tests[m.dir] == nil {
			tests[m.dir] = testsIn(t, m.dir)
		}
		if !slices.Contains(tests[m.dir], m.test) {
			t.Errorf("%s: %s has no %s", m.check, m.dir, m.test)
		}
		if checks[m.check] {
			t.Errorf("%s is listed twice", m.check)
		}
		checks[m.check] = true
	}
	for _, kind := range failureKinds(t) {
		if !checks[kind] {
			t.Errorf("no mutation for soak's kind of failure %q", kind)
		}
	}
	t.Logf("%d mutations, and %d invariants in two of them", len(mutations), len(invariants.All()))
}

// parsed returns the files of a folder of the module.
func parsed(t *testing.T, pattern string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("../..", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v, %v", pattern, names, err)
	}
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

func testsIn(t *testing.T, dir string) []string {
	t.Helper()
	var tests []string
	for _, file := range parsed(t, dir+"/*_test.go") {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				tests = append(tests, f.Name.Name)
			}
		}
	}
	return tests
}

// failureKinds returns the constants of bench/verify/soak/judge.go.
func failureKinds(t *testing.T) []string {
	t.Helper()
	var kinds []string
	for _, decl := range parsed(t, "bench/verify/soak/judge.go")[0].Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			for _, value := range spec.(*ast.ValueSpec).Values {
				if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					kind, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					kinds = append(kinds, kind)
				}
			}
		}
	}
	if len(kinds) < 5 {
		t.Fatalf("kinds %q", kinds)
	}
	return kinds
}
