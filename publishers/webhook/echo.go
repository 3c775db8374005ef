package webhook

import (
	"bytes"
	"encoding/binary"
	"strings"
)

const (
	// echoBytes is from which length on a common part counts as a repetition. Eight bytes are fewer than a phone number
	// or most addresses have, and can be compared as one number.
	echoBytes = 8
	// shortEchoBytes is the same for sources that are shorter as a whole.
	shortEchoBytes = 4

	echoMark = "[…]"
)

// withoutEchoes replaces what a text repeats of the sources. Receivers quote what they did not understand, and errors
// must not be where a body ends up.
func withoutEchoes(text []byte, sources ...[]byte) string {
	echoed := make([]bool, len(text))
	windows := make(map[uint64]bool)
	for i := range len(text) - echoBytes + 1 {
		windows[binary.NativeEndian.Uint64(text[i:])] = false
	}
	for _, source := range sources {
		if len(source) < echoBytes {
			markShort(echoed, text, source)
			continue
		}
		for i := range len(source) - echoBytes + 1 {
			window := binary.NativeEndian.Uint64(source[i:])
			if _, common := windows[window]; common {
				windows[window] = true
			}
		}
	}
	for i := range len(text) - echoBytes + 1 {
		if windows[binary.NativeEndian.Uint64(text[i:])] {
			mark(echoed[i : i+echoBytes])
		}
	}
	var kept strings.Builder
	for i, b := range text {
		switch {
		case !echoed[i]:
			kept.WriteByte(b)
		case i == 0 || !echoed[i-1]:
			kept.WriteString(echoMark)
		}
	}
	return kept.String()
}

func markShort(echoed []bool, text, source []byte) {
	if len(source) < shortEchoBytes {
		return
	}
	for at := 0; ; {
		i := bytes.Index(text[at:], source)
		if i < 0 {
			return
		}
		mark(echoed[at+i : at+i+len(source)])
		at += i + 1
	}
}

func mark(echoed []bool) {
	for i := range echoed {
		echoed[i] = true
	}
}
