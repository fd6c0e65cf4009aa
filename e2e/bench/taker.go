package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"

	"github.com/stager-dev/stager/stager/api"
)

// TakerFlag is the first argument of the process that takes shards.
const TakerFlag = "-taker"

// Taker is a trainer without work: it takes each shard of the window behind STAGER_SOCKET as soon as it is
// there, over one connection, and wants as many as args say. It starts in a few milliseconds; an interpreter
// would add its own start to that of the window.
func Taker(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s is for the bench itself", TakerFlag)
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", os.Getenv("STAGER_SOCKET"))
	}}}
	for seen := 0; ; {
		var l api.LeaseResponse
		code, err := post(ctx, client, "/v1/inputs/train/lease?wait=30s", &l)
		switch {
		case err != nil:
			return err
		case code == http.StatusNoContent:
			continue
		case code != http.StatusOK:
			return fmt.Errorf("a lease is answered with %d", code)
		case l.End && seen != want:
			return fmt.Errorf("%d shards came, want %d", seen, want)
		case l.End:
			return nil
		}
		if info, err := os.Stat(l.Path); err != nil || info.Size() == 0 {
			return fmt.Errorf("a shard that was leased is not there, or empty: %w", err)
		}
		if code, err = post(ctx, client, "/v1/leases/"+l.Lease+"/ack", nil); err != nil || code != http.StatusNoContent {
			return fmt.Errorf("an acknowledgement is answered with %d: %w", code, err)
		}
		seen++
	}
}

// post sends a request without a body, and decodes what comes with 200 into out.
func post(ctx context.Context, client *http.Client, path string, out any) (code int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://stager"+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK && out != nil {
		err = json.Unmarshal(body, out)
	}
	return resp.StatusCode, err
}

// taker is the command of a Taker of so many shards.
func taker(shards int) *exec.Cmd {
	self, err := os.Executable()
	cmd := exec.Command(self, TakerFlag, strconv.Itoa(shards)) //nolint:noctx // measure runs it
	cmd.Err = err
	return cmd
}
