package settings

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// maxDistance is how many letters may be wrong in a name that is taken for a mistyped setting.
	maxDistance = 2
	// minLength keeps HOME from being taken for HOST.
	minLength = 8
	// maxWarnings is enough to see that something is wrong.
	maxWarnings = 10
	// maxNameBytes is longer than any setting's name.
	maxNameBytes = 64
)

// prefixes begin names that nobody else uses.
var prefixes = []string{"WORKER_", "WEBHOOK_", "RATE_LIMIT_", "MOCK_"}

// strangers are names in the environment that are no settings and look like ones. They are ignored, and whoever mistyped a
// setting would wonder why it does nothing. Their values are not looked at.
func strangers(given map[string]string, rows []setting) []string {
	known := make(map[string]bool, len(rows))
	for i := range rows {
		known[rows[i].name] = true
	}
	var found []string
	for name := range given {
		if known[name] || len(name) > maxNameBytes || byKubernetes(name) {
			continue
		}
		meant := nearest(name, rows)
		switch {
		case meant != "":
			found = append(found, fmt.Sprintf("%s is no setting; is %s meant?", name, meant))
		case slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }):
			found = append(found, name+" is no setting")
		}
	}
	slices.Sort(found)
	return found[:min(len(found), maxWarnings)]
}

// byKubernetes tells the variables that a pod gets for each service, WORKER_SERVICE_HOST say.
func byKubernetes(name string) bool {
	return strings.Contains(name, "_SERVICE_") || strings.HasSuffix(name, "_PORT") || strings.Contains(name, "_PORT_")
}

func nearest(name string, rows []setting) (found string) {
	least := maxDistance + 1
	for i := range rows {
		known := rows[i].name
		if min(len(name), len(known)) < minLength {
			continue
		}
		if d := distance(strings.ToUpper(name), known); d < least {
			least, found = d, known
		}
	}
	return found
}

// distance is how many letters have to be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
