// Package shell prints commands as a POSIX shell reads them.
package shell

import "strings"

// Line joins the words of a command. Words with characters that mean something to a shell are quoted.
func Line(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quote(word)
	}
	return strings.Join(quoted, " ")
}

// Calls reports whether a shell that reads a line would do nothing but call a program with some words: the line is as
// Line writes it.
func Calls(program, line string) bool {
	var words []string
	for rest := line; rest != ""; {
		word := ""
		for rest != "" && rest[0] != ' ' {
			quoted, found := rest, false
			if after, is := strings.CutPrefix(rest, "'"); is {
				quoted, rest, found = strings.Cut(after, "'")
			} else if after, is := strings.CutPrefix(rest, `\'`); is {
				quoted, rest, found = "'", after, true
			} else {
				end := strings.IndexAny(rest, ` '\`)
				if end < 0 {
					end = len(rest)
				}
				quoted, rest, found = rest[:end], rest[end:], end > 0
			}
			if !found {
				return false
			}
			word += quoted
		}
		words = append(words, word)
		rest = strings.TrimPrefix(rest, " ")
	}
	return len(words) > 0 && words[0] == program && Line(words...) == line
}

// plain are the characters that mean nothing to a shell, wherever they stand in a word.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,=+@%"

func quote(word string) string {
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
