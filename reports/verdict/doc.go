// Package verdict states the result of runs in a few lines of plain words: saturated or not, SLOs met or violated, flows
// lost, faults repaired, who is faster by how much, growth. The rules see facts only, so that tests need no records.
// Package front collects the facts.
package verdict
