// Package published says whether what others published about Service proxies is also what this machine shows.
//
//  1. Judge reads the run of a claim (scenarios/published), and compares each expected value with what was measured.
//  2. Document is the table of all claims, for a terminal, a page and docs/published.md.
package published
