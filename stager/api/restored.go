package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// restored records that a trainer begins again from a checkpoint on which the nodes of its job
// agreed. The files that are now in the outputs belong to the run that has ended.
func (a *API) restored(w http.ResponseWriter, r *http.Request) {
	source, job, text := r.FormValue("source"), r.FormValue("job"), r.FormValue("agreement")
	agreement, err := strconv.Atoi(text)
	if source == "" || job == "" || err != nil || agreement < 1 {
		fail(w, http.StatusBadRequest, fmt.Errorf(
			"source=%q, job=%q, agreement=%q: the URL of the checkpoints, the identity of the job and the number of the agreement, from 1, are required", source, job, text))
		return
	}
	switch err := a.Restored(source, job, agreement); {
	case err == nil:
		answer(w, http.StatusOK, a.Snapshot())
	case errors.Is(err, ErrNotYet):
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, err)
	default:
		fail(w, http.StatusInternalServerError, err)
	}
}
