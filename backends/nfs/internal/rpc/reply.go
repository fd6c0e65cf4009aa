package rpc

import "fmt"

// MismatchError reports that the server has the program only in other versions.
type MismatchError struct{ Low, High uint32 }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("the server supports versions %d to %d of the program", e.Low, e.High)
}

// DeniedError reports that the server rejects the credential.
type DeniedError struct{ Why uint32 }

func (e *DeniedError) Error() string {
	why, known := map[uint32]string{
		1: "the credential is malformed", 2: "a new credential is needed", 5: "a stronger credential is needed",
		13: "it requires Kerberos", 14: "it requires Kerberos",
	}[e.Why]
	if !known {
		why = fmt.Sprintf("reason %d", e.Why)
	}
	return "the server rejected the credential: " + why
}

// RefusedError reports that the server rejected the call.
type RefusedError struct{ Stat uint32 }

func (e *RefusedError) Error() string {
	why, known := map[uint32]string{
		1: "it does not serve this program", 3: "it does not support this procedure",
		4: "it could not decode the arguments", 5: "it had an internal error",
	}[e.Stat]
	if !known {
		why = fmt.Sprintf("reason %d", e.Stat)
	}
	return "the server rejected the call: " + why
}

// accepted decodes a reply after its type, up to the results.
func accepted(d *Decoder) error {
	if d.Uint32() != 0 { // denied
		if d.Uint32() == 0 {
			d.Uint32()
			d.Uint32()
			return firstError(d, &RefusedError{Stat: 2})
		}
		return firstError(d, &DeniedError{Why: d.Uint32()})
	}
	d.Uint32()
	d.Opaque(400)
	switch stat := d.Uint32(); {
	case d.Err() != nil:
		return d.Err()
	case stat == 0:
		return nil
	case stat == 2:
		low, high := d.Uint32(), d.Uint32()
		return firstError(d, &MismatchError{low, high})
	default:
		return &RefusedError{stat}
	}
}

func firstError(d *Decoder, err error) error {
	if d.Err() != nil {
		return d.Err()
	}
	return err
}
