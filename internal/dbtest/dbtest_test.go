package dbtest_test

import (
	"testing"
	"time"

	"github.com/notifyq/notifyq/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestNew(t *testing.T) {
	for range 5 {
		t0 := time.Now()
		t.Run("", func(t *testing.T) {
			db := dbtest.New(t)
			t.Log(time.Since(t0))
			db.CheckInvariants(t)
			t.Log(time.Since(t0))
		})
		t.Log(time.Since(t0))
	}
	t.Log(dbtest.NewDatabase(t))
}
