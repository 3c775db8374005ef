package notify_test

import (
	"testing"

	"github.com/notifyq/notifyq/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }
