package settings

import (
	"cmp"
	"fmt"
	"io"
)

// Help prints every setting with its default, its meaning and its values.
func Help(w io.Writer) {
	rows := table(&Settings{})
	names, fallbacks := 0, 0
	for i := range rows {
		names, fallbacks = max(names, len(rows[i].name)), max(fallbacks, len(rows[i].fallback))
	}
	group := ""
	for i := range rows {
		row := &rows[i]
		if row.group != group {
			group = row.group
			_, _ = fmt.Fprintf(w, "\n%s\n", group)
		}
		fallback := cmp.Or(row.fallback, "-")
		_, _ = fmt.Fprintf(w, "  %-*s  %-*s  %s (%s)\n", names, row.name, fallbacks, fallback, row.meaning, row.form)
	}
}
