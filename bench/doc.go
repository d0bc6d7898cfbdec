// Package bench runs subjects (proxies under test) and records what they do. lab has what they run in, verify what must hold.
//
//  1. Execute runs a scenario: each cell several times, the subjects in turn. Plan chooses its own cells within a
//     time budget (bench/search).
//  2. For each repetition, the program runs itself again in a network namespace (bench/lab/netns). No rule reaches the
//     machine's own namespace. The parent sends the worker its pass.Assignment; Work executes it.
//  3. step.New makes the parts of a repetition and connects them by events (bench/pass). step.Kinds says what each kind of
//     step does with them.
//  4. bench/subject/host runs the subject. bench/fault breaks something, bench/traffic/flow and bench/probe send packets, and
//     bench/verify/check checks invariants.
//  5. The worker sends each measured value to the parent, which appends it to the run's folder: one record a line,
//     nothing averaged (bench/raw).
//
// A run's folder has run.json (raw.Run), records.jsonl (one raw.Record a line) and bench.txt (the medians of repetitions in the Go
// benchmark format). Package reports derives all other files.
package bench
