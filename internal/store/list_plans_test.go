package store

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// listPlans are all kinds of filters, behind a cursor, which is part of the walk's condition.
func (p *planTables) listPlans() map[string]planned {
	all := map[string]planned{}
	for _, f := range allFilters() {
		all[filterName(f)] = p.listPlan(f, p.jobs[planBatch/2].ID)
	}
	return all
}

// allFilters are the combinations of filters; a tenant's name may be empty.
func allFilters() (filters []Filter) {
	rare, none, recipient, channel := "rare", "", "hot", "SMS"
	for _, tenant := range []*string{nil, &none, &rare} {
		for _, r := range []*string{nil, &recipient} {
			for _, c := range []*string{nil, &channel} {
				for status := int16(-1); status <= 5; status++ {
					f := Filter{Tenant: tenant, RecipientKey: r, Channel: c}
					if status >= 0 {
						f.Status = &status
					}
					filters = append(filters, f)
				}
			}
		}
	}
	return filters
}

func filterName(f Filter) string {
	var parts []string
	for name, value := range map[string]*string{"tenant": f.Tenant, "recipient": f.RecipientKey, "channel": f.Channel} {
		if value != nil {
			parts = append(parts, fmt.Sprintf("%s %q", name, *value))
		}
	}
	if f.Status != nil {
		parts = append(parts, fmt.Sprint("status ", *f.Status))
	}
	return strings.Join(parts, ", ")
}

func (p *planTables) listPlan(f Filter, before uuid.UUID) planned {
	sql, args := p.store.list(f, before, planBatch)
	// What is sorted is the page that was found.
	return planned{sql: sql, args: args, sorts: 1, most: readCap, walks: true, walk: filterIndex(f)}
}

// filterIndex is the one to walk for a filter.
func filterIndex(f Filter) string {
	named := f.Tenant != nil && *f.Tenant != ""
	switch {
	case f.RecipientKey != nil:
		return "notifications_recipient_key"
	case f.Status == nil || *f.Status == 2 && f.Tenant != nil:
		if named {
			return "notifications_tenant"
		}
		return "notifications_pkey"
	case *f.Status == 0:
		return "notification_queue_pkey"
	case *f.Status == 1:
		return "notification_queue_processing"
	case *f.Status == 2:
		return "notification_outcomes_pkey"
	case f.Tenant != nil:
		return "notification_outcomes_tenant_status"
	default:
		return "notification_outcomes_status"
	}
}
