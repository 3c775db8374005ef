package strictjson

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// nameSet is the unescaped names of one object. Up to fewNames they are compared with each other and cost no
// allocation, which covers nearly every object there is; beyond that a map keeps the time linear.
type nameSet struct {
	few   [fewNames][]byte
	count int
	many  map[string]struct{}
}

const fewNames = 16

// add reports whether name was not there yet.
func (s *nameSet) add(name []byte) bool {
	if s.many != nil {
		return s.addToMany(name)
	}
	for _, known := range s.few[:s.count] {
		if bytes.Equal(known, name) {
			return false
		}
	}
	if s.count < fewNames {
		s.few[s.count] = name
		s.count++
		return true
	}
	s.many = make(map[string]struct{}, 4*fewNames)
	for _, known := range s.few {
		s.many[string(known)] = struct{}{}
	}
	return s.addToMany(name)
}

func (s *nameSet) addToMany(name []byte) bool {
	if _, known := s.many[string(name)]; known {
		return false
	}
	s.many[string(name)] = struct{}{}
	return true
}

// appendUnescaped appends what the inside of a checked string stands for.
func appendUnescaped(dst, raw []byte) []byte {
	for len(raw) > 0 {
		plainUntil := bytes.IndexByte(raw, '\\')
		if plainUntil < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:plainUntil]...)
		r, size := unescape(raw[plainUntil:])
		dst = utf8.AppendRune(dst, r)
		raw = raw[plainUntil+size:]
	}
	return dst
}

// unescape is the character that the checked escape at the start of raw stands for, and the length of the escape.
func unescape(raw []byte) (rune, int) {
	switch raw[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		unit := hexUnit(raw[2:])
		if utf16.IsSurrogate(unit) {
			return utf16.DecodeRune(unit, hexUnit(raw[8:])), 12
		}
		return unit, 6
	default:
		return rune(raw[1]), 2 // a quote, a slash or a backslash
	}
}

func hexUnit(raw []byte) rune {
	return hexDigit(raw[0])<<12 | hexDigit(raw[1])<<8 | hexDigit(raw[2])<<4 | hexDigit(raw[3])
}
