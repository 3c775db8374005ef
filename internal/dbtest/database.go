package dbtest

import (
	"context"
	"net/url"
	"strings"
	"testing"
)

// NewDatabase makes an empty database for one test and returns its URL. Options go into CREATE DATABASE, such as
// "encoding 'LATIN1'". When the test is over its connections are cut and it is dropped.
func NewDatabase(t testing.TB, options ...string) string {
	t.Helper()
	server, admin := shared.start(t)
	name := uniqueName("d")
	create := "create database " + name + " template template0 " + strings.Join(options, " ")
	if _, err := admin.Exec(t.Context(), create); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTimeout)
		defer cancel()
		if _, err := admin.Exec(ctx, "drop database "+name+" with (force)"); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal("dbtest: the server's URL must be in the form postgres://…")
	}
	u.Path = "/" + name
	return u.String()
}
