package main

import (
	"context"
	"os/signal"
	"syscall"
	"time"
)

// untilSignal returns a context that ends with SIGINT or SIGTERM, so that the command can clean up.
// A second signal ends the process at once, unless it is an echo of the first: timeout(1) and
// others signal the process and then its group.
func untilSignal() (context.Context, context.CancelFunc) {
	const echo = time.Second
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(echo, stop) })
	return ctx, stop
}
