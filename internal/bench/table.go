package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// median of one figure over the rounds.
func (r *result) median(contender, figure string) float64 {
	var all []float64
	for _, f := range r.rounds[contender] {
		all = append(all, f[figure])
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// print writes the medians, and how they stand to each other.
func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", r.name, r.what)
	for _, c := range r.contenders {
		rounds := r.rounds[c.name]
		if len(rounds) == 0 {
			continue
		}
		var rest []string
		for _, figure := range slices.Sorted(maps.Keys(rounds[0])) {
			if figure != r.figure {
				rest = append(rest, number(r.median(c.name, figure))+" "+figure)
			}
		}
		fmt.Fprintf(w, "  %-34s %10s %s   (%s)\n", c.name, number(r.median(c.name, r.figure)), r.figure, strings.Join(rest, ", "))
	}
	for _, t := range r.targets {
		if line := r.judge(t); line != "" {
			fmt.Fprintln(w, "  "+line)
		}
	}
}

// judge says how a target stands.
func (r *result) judge(t target) string {
	of := t.of
	if of == "" {
		of = r.contenders[0].name
	}
	if t.to == "" {
		got := r.median(of, t.figure)
		return fmt.Sprintf("%s: %s %s, at most %s%s", of, number(got), t.figure, number(t.atMost), missed(got > t.atMost))
	}
	mine, other := r.median(of, r.figure), r.median(t.to, r.figure)
	if other == 0 || mine == 0 {
		return ""
	}
	ratio := mine / other
	if r.least {
		ratio = other / mine
	}
	return fmt.Sprintf("%s / %s: %.2f, at least %.2f%s", of, t.to, ratio, t.atLeast, missed(ratio < t.atLeast))
}

func missed(yes bool) string {
	if yes {
		return "   MISSED"
	}
	return ""
}

// number is short and readable: 45,678 or 0.0123.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return fmt.Sprintf("%.3g", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// writeJSON keeps every round.
func writeJSON(path string, at conditions, results []*result) error {
	type measured struct {
		Name   string               `json:"name"`
		What   string               `json:"what"`
		Figure string               `json:"figure"`
		Rounds map[string][]figures `json:"rounds"`
	}
	out := struct {
		At           time.Time  `json:"at"`
		Conditions   conditions `json:"conditions"`
		Measurements []measured `json:"measurements"`
	}{At: time.Now().UTC(), Conditions: at}
	for _, r := range results {
		out.Measurements = append(out.Measurements, measured{r.name, r.what, r.figure, r.rounds})
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
