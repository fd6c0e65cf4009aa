package admission

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pipes is a listener without a network, so that time can be virtual.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// send starts a request with a body of size bytes, of which it sends body. The returned function
// waits for the response.
func (p pipes) send(t *testing.T, size int, body []byte) (answer func() (code int, text string)) {
	t.Helper()
	client, server := net.Pipe()
	p <- server
	go func() {
		fmt.Fprintf(client, "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
		_, _ = client.Write(body) // the server stops reading once it has responded
	}()
	return func() (int, string) {
		defer client.Close()
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, string(text)
	}
}

// serveLate starts a server of reviews over pipes, for virtual time. The function shut stops it.
func serveLate(t *testing.T) (conns pipes, shut func()) {
	t.Helper()
	s := newServer()
	server, conns := s.reviewer(NewMetrics(prometheus.NewRegistry(), s.Certificates.Expires)), make(pipes)
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(conns) }) // returns after Close
	return conns, func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		done.Wait()
	}
}

// wantResponse checks the status and the text of a response.
func wantResponse(t *testing.T, what string, code int, text string, wantCode int, wantText string) {
	t.Helper()
	if code != wantCode || !strings.Contains(text, wantText) {
		t.Errorf("%s: got %d %.200q, want %d and %q", what, code, text, wantCode, wantText)
	}
}

// Twice as many requests as the limit start, and their bodies do not arrive. One more request
// arrives completely and waits longer than the time limit for a body. It used to fail with a
// truncated body that the server had never started to read.
func TestRequestCompletesBesideSlowOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns, shut := serveLate(t)
		defer shut()
		var slow []func() (int, string)
		for range 2 * 4 * runtime.GOMAXPROCS(0) {
			slow = append(slow, conns.send(t, 1000, []byte("{")))
		}
		synctest.Wait() // all have a turn or wait for one
		good := reviewOf(t, podWith(asking+`,"x":"`+strings.Repeat("x", 100<<10)+`"`), nil)
		whole := conns.send(t, len(good), good)
		for _, answer := range slow {
			code, text := answer()
			wantResponse(t, "a body that does not arrive", code, text, http.StatusRequestTimeout, "the body did not arrive within 10s\n")
		}
		code, text := whole()
		wantResponse(t, "the request that waited", code, text, http.StatusOK, "JSONPatch")
	})
}

// A request that waits too long for its turn gets an answer, and its connection serves the next. The
// server used to reset the connection, because the deadline for the body had passed.
func TestRequestWaitingTooLongIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns, shut := serveLate(t)
		defer shut()
		client, conn := net.Pipe()
		conns <- conn // ReadTimeout begins here
		defer client.Close()
		// Bodies that do not arrive take all turns for longestCall and answerTime.
		turns := 4 * runtime.GOMAXPROCS(0)
		var slow []func() (int, string)
		keepBusy := func(rounds int) {
			for range rounds * turns {
				slow = append(slow, conns.send(t, 1000, []byte("{")))
			}
			synctest.Wait()
		}
		keepBusy(int(longestCall / answerTime))
		time.Sleep(answerTime / 2)
		keepBusy(1)
		time.Sleep(time.Second)
		good := reviewOf(t, podWith(asking+`,"x":"`+strings.Repeat("x", 100<<10)+`"`), nil)
		responses := bufio.NewReader(client)
		post := func() (code int, text string) {
			sent := make(chan error, 1)
			go func() {
				_, err := fmt.Fprintf(client, "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(good), good)
				sent <- err
			}()
			resp, err := http.ReadResponse(responses, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, <-sent); err != nil {
				t.Error(err)
			}
			return resp.StatusCode, string(body)
		}
		code, text := post()
		wantResponse(t, "the request that waited too long", code, text, http.StatusServiceUnavailable, "other requests took longer than 30s")
		for _, answer := range slow {
			answer()
		}
		code, text = post()
		wantResponse(t, "the next request", code, text, http.StatusOK, "JSONPatch")
	})
}

// A client that disconnects is not a slow client.
func TestBodyTruncated(t *testing.T) {
	s := newServer()
	r, w := io.Pipe()
	_ = w.CloseWithError(io.ErrUnexpectedEOF)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/mutate", r)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	_, what, err := s.answer(nil, request)
	if what != Late || err == nil || err.Error() != "the body ended early: unexpected EOF" {
		t.Errorf("got %s, %v, want late, and that it ended early", what, err)
	}
}
