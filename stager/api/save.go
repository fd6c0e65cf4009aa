package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// save returns 200 when all outputs are in the store, and 500 if a required one is not saved within
// its deadline. ?code=N is the exit code of the trainer. The daemon continues to serve, as the
// trainer may be restarted.
func (a *API) save(w http.ResponseWriter, r *http.Request) {
	code := 0
	if text := r.FormValue("code"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 255 {
			fail(w, http.StatusBadRequest, fmt.Errorf("code=%q is not an exit code from 0 to 255", text))
			return
		}
		code = n
	}
	switch err := a.Save(r.Context(), code); {
	case err == nil:
		answer(w, http.StatusOK, a.Snapshot())
	case errors.Is(err, ErrNotYet):
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, err)
	default:
		fail(w, http.StatusInternalServerError, err)
	}
}
