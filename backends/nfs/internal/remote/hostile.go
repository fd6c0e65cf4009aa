package remote

import "errors"

// FormatError says that a server's message could not be understood.
type FormatError struct{ Err error }

func (e *FormatError) Error() string { return "the server's answer makes no sense: " + e.Err.Error() }

// Unwrap is the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// Malformed is what is wrong with a server's message as a FormatError, or nil.
func Malformed(err error) error {
	if err == nil {
		return nil
	}
	return &FormatError{err}
}

// Pages are the places from which a listing went on. Cookies have no order, so only
// this tells a long directory from one that goes in circles. The zero value begins.
type Pages struct{ seen map[uint64]bool }

// Next takes the cookie that ended a page which was not the last.
func (p *Pages) Next(cookie uint64) error {
	if p.seen == nil {
		p.seen = map[uint64]bool{0: true}
	}
	if p.seen[cookie] {
		return Malformed(errors.New("a directory goes on, but not behind where it was"))
	}
	p.seen[cookie] = true
	return nil
}
