// Package reportstest writes the files of runs that were never measured, for the tests of reports: their numbers are known.
package reportstest
