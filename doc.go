// Package notifyq is a notification queue on PostgreSQL.
package notifyq
