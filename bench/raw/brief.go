package raw

import "strings"

// LineLength is the most characters of a line that says what is wrong. Records have the whole text.
const LineLength = 300

// Brief returns a text as one line of at most most characters.
func Brief(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	letters := []rune(text)
	if len(letters) <= most {
		return text
	}
	return string(letters[:most-2]) + " …"
}
