package strictjson

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func benchmarkInputs() map[string][]byte {
	var wide bytes.Buffer
	for i := range 4000 {
		fmt.Fprintf(&wide, `%c"name%d":%d`, "{,"[min(i, 1)], i, i)
	}
	wide.WriteByte('}')
	return map[string][]byte{
		"small":    []byte(`{"template":"welcome","userId":12345678}`),
		"envelope": []byte(`{"idempotencyKey":"order-1234-confirmation","recipient":"someone@example.test","channel":"EMAIL","payload":{"template":"welcome","user":{"id":9007199254740993,"name":"Ann"}},"priority":"HIGH"}`),
		"text":     []byte(`{"t":"` + strings.Repeat("lorem ipsum ", 5000) + `"}`),
		"wide":     wide.Bytes(),
	}
}

func BenchmarkCheck(b *testing.B) {
	for name, input := range benchmarkInputs() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(input)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Check(input, Limits{MaxBytes: 1 << 20, MaxDepth: 64}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendCanonical(b *testing.B) {
	for name, input := range benchmarkInputs() {
		b.Run(name, func(b *testing.B) {
			dst := make([]byte, 0, 1<<20)
			b.SetBytes(int64(len(input)))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendCanonical(dst[:0], input)
			}
		})
	}
}
