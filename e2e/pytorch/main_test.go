package pytorch

import (
	"os"
	"testing"

	"github.com/stager-dev/stager/e2e/room"
)

func TestMain(m *testing.M) { os.Exit(room.Run(m)) }
