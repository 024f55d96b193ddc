package ops_test

import (
	"testing"

	"github.com/weir-es/weir/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
