package remote

import "errors"

// FormatError reports that a message of the server is malformed.
type FormatError struct{ Err error }

func (e *FormatError) Error() string { return "invalid response from the server: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// Malformed wraps a decoding error in a FormatError. It returns nil for nil.
func Malformed(err error) error {
	if err == nil {
		return nil
	}
	return &FormatError{err}
}

// Pages records the cookies of a listing. Cookies have no order, so only a repeated cookie
// distinguishes a loop from a long directory. The zero value is ready to use.
type Pages struct{ seen map[uint64]bool }

// Next records the cookie after a page that was not the last. It returns an error if it repeats.
func (p *Pages) Next(cookie uint64) error {
	if p.seen == nil {
		p.seen = map[uint64]bool{0: true}
	}
	if p.seen[cookie] {
		return Malformed(errors.New("a directory listing does not advance"))
	}
	p.seen[cookie] = true
	return nil
}
