package rpc

import (
	"errors"

	"github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Error is an exception of a NameNode.
type Error struct {
	method, desc, exception, message string
	fatal                            bool // the server closes the connection
}

// The library's errors implement it too. Importing the library also registers the messages.
var _ hdfs.Error = (*Error)(nil)

// Method returns the name of the call that failed.
func (e *Error) Method() string { return e.method }

// Desc returns the name of the error code, such as ERROR_APPLICATION.
func (e *Error) Desc() string { return e.desc }

// Exception returns the Java class of the exception, such as java.io.FileNotFoundException.
func (e *Error) Exception() string { return e.exception }

// Message returns the text of the exception, usually with a stack trace.
func (e *Error) Message() string { return e.message }

// Error implements error.
func (e *Error) Error() string {
	text := e.method + " call failed with " + e.desc
	if e.exception != "" {
		text += " (" + e.exception + ")"
	}
	return text
}

var errSequence = errors.New("unexpected sequence number")

// check returns the exception of a response, or an error if it is not the response to a call. A
// server that rejects a connection sends an exception without the number of the call.
func check(method string, header protoreflect.Message, call int32) error {
	const (
		success = protoreflect.EnumNumber(0)
		fatal   = protoreflect.EnumNumber(2)
	)
	if status := get(header, "status").Enum(); status != success {
		desc := ""
		codes := header.Descriptor().Fields().ByName("errorDetail").Enum().Values()
		if code := codes.ByNumber(get(header, "errorDetail").Enum()); code != nil {
			desc = string(code.Name())
		}
		return &Error{
			method: method, desc: desc, fatal: status == fatal,
			exception: get(header, "exceptionClassName").String(), message: get(header, "errorMsg").String(),
		}
	}
	if int32(get(header, "callId").Uint()) != call {
		return errSequence
	}
	return nil
}
