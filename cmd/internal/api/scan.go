package api

import (
	"encoding/json"
	"iter"
)

// scan.go walks JSON that strictjson.Check has accepted, without surrounding white space. It gives values as they were
// sent, digits and escapes included, because that is what is stored.

// members are the names and values of an object. A name is only good until the next one.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		pos := skipSpace(object, 1)
		for object[pos] != '}' {
			nameEnd := skipText(object, pos)
			start := skipSpace(object, skipSpace(object, nameEnd)+1)
			end := skipValue(object, start)
			if !yield(unescaped(object[pos:nameEnd]), object[start:end]) {
				return
			}
			pos = skipComma(object, end)
		}
	}
}

// elements are the values of an array.
func elements(array []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		pos := skipSpace(array, 1)
		for array[pos] != ']' {
			end := skipValue(array, pos)
			if !yield(array[pos:end]) {
				return
			}
			pos = skipComma(array, end)
		}
	}
}

func skipSpace(b []byte, pos int) int {
	for b[pos] == ' ' || b[pos] == '\n' || b[pos] == '\t' || b[pos] == '\r' {
		pos++
	}
	return pos
}

// skipComma is where the next element begins, or the end of what holds it.
func skipComma(b []byte, pos int) int {
	if pos = skipSpace(b, pos); b[pos] == ',' {
		pos = skipSpace(b, pos+1)
	}
	return pos
}

func skipText(b []byte, pos int) int {
	for pos++; b[pos] != '"'; pos++ {
		if b[pos] == '\\' {
			pos++
		}
	}
	return pos + 1
}

func skipValue(b []byte, pos int) int {
	switch b[pos] {
	case '"':
		return skipText(b, pos)
	case '{', '[':
		return skipNested(b, pos)
	}
	for pos < len(b) { // a number or a word
		switch b[pos] {
		case ',', ']', '}', ' ', '\n', '\t', '\r':
			return pos
		}
		pos++
	}
	return pos
}

func skipNested(b []byte, pos int) int {
	for depth := 0; ; {
		switch b[pos] {
		case '"':
			pos = skipText(b, pos)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		pos++
		if depth == 0 {
			return pos
		}
	}
}

// unescaped is what a string with its quotes stands for.
func unescaped(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	for _, b := range inner {
		if b == '\\' {
			var text string
			if json.Unmarshal(quoted, &text) != nil { // can't be: it was checked
				return nil
			}
			return []byte(text)
		}
	}
	return inner
}
