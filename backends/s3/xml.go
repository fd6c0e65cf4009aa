package s3

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// scanner is an XML parser for what stores send: elements, text and comments. It supports only the
// predefined entities and no document types.
type scanner struct {
	text   []byte
	open   [][]byte // the names of the open elements, with their prefixes
	single bool     // the innermost element is self-closing
}

// event is the kind of a token.
type event int

const (
	opens  event = iota // an element begins
	holds               // text; more may follow
	closes              // an element ends
)

var errTorn = errors.New("the XML is truncated")

// next returns the next token. name is an element name without its prefix, run a piece of text.
// Both are valid until the text changes. Nothing is read after the end of the outermost element.
func (s *scanner) next() (what event, name, run []byte, err error) {
	if s.single {
		s.single = false
		return closes, s.pop(), nil, nil
	}
	for {
		if len(s.text) < 2 {
			return 0, nil, nil, errTorn
		}
		if s.text[0] != '<' {
			run, err := s.run()
			if err != nil || len(s.open) > 0 {
				return holds, nil, run, err
			}
			continue
		}
		switch s.text[1] {
		case '/':
			name, err := s.end()
			return closes, name, nil, err
		case '?':
			_, err = s.cutAfter(2, "?>")
		case '!':
			switch {
			case bytes.HasPrefix(s.text, []byte("<!--")):
				_, err = s.cutAfter(4, "-->")
			case bytes.HasPrefix(s.text, []byte("<![CDATA[")) && len(s.open) > 0:
				run, err := s.cutAfter(9, "]]>")
				return holds, nil, newlines(run), err
			default:
				err = errors.New("XML with a document type is not supported")
			}
		default:
			name, err := s.tag()
			return opens, local(name), nil, err
		}
		if err != nil {
			return 0, nil, nil, err
		}
	}
}

// run reads text up to the next tag.
func (s *scanner) run() ([]byte, error) {
	i := bytes.IndexByte(s.text, '<')
	if i < 0 {
		i = len(s.text)
	}
	run := s.text[:i]
	s.text = s.text[i:]
	if len(s.open) == 0 && len(bytes.TrimSpace(bytes.TrimPrefix(run, []byte("\ufeff")))) > 0 {
		return nil, errors.New("not XML")
	}
	return unescape(run)
}

// end reads an end tag.
func (s *scanner) end() (name []byte, err error) {
	whole, err := s.cutAfter(2, ">")
	if err != nil {
		return nil, err
	}
	if whole = bytes.TrimRight(whole, " \t\r\n"); len(s.open) == 0 || !bytes.Equal(whole, s.open[len(s.open)-1]) {
		return nil, fmt.Errorf("unexpected </%s>", whole)
	}
	return s.pop(), nil
}

// tag reads a start tag.
func (s *scanner) tag() (name []byte, err error) {
	quote := byte(0) // of an attribute value, which may contain '>'
	end, named := 1, 0
	for ; end < len(s.text) && (s.text[end] != '>' || quote != 0); end++ {
		switch c := s.text[end]; c {
		case quote:
			quote = 0
		case '"', '\'':
			if quote == 0 {
				quote = c
			}
		case ' ', '\t', '\r', '\n':
			if named == 0 {
				named = end
			}
		case '<':
			if quote == 0 {
				return nil, errors.New("an element starts within a tag")
			}
		}
	}
	if end == len(s.text) {
		return nil, errTorn
	}
	name, s.single = bytes.CutSuffix(s.text[1:end], []byte("/"))
	if named > 0 {
		name = s.text[1:named]
	}
	if len(local(name)) == 0 || bytes.IndexByte(name, '/') >= 0 {
		return nil, errors.New("an element has no name")
	}
	s.text = s.text[end+1:]
	s.open = append(s.open, name)
	return name, nil
}

// pop leaves the innermost element and returns its name.
func (s *scanner) pop() (name []byte) {
	last := len(s.open) - 1
	name = local(s.open[last])
	s.open = s.open[:last]
	return name
}

// local returns a name without its namespace prefix.
func local(name []byte) []byte { return name[bytes.IndexByte(name, ':')+1:] }

// cutAfter returns the text between the first skip bytes and the mark, and consumes it with the
// mark.
func (s *scanner) cutAfter(skip int, mark string) (run []byte, err error) {
	i := bytes.Index(s.text[skip:], []byte(mark))
	if i < 0 {
		return nil, errTorn
	}
	run, s.text = s.text[skip:skip+i], s.text[skip+i+len(mark):]
	return run, nil
}

// newlines normalizes line endings.
func newlines(run []byte) []byte {
	if bytes.IndexByte(run, '\r') < 0 {
		return run
	}
	run = bytes.ReplaceAll(run, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(run, []byte("\r"), []byte("\n"))
}

// unescape replaces the entities in run.
func unescape(run []byte) ([]byte, error) {
	run = newlines(run)
	if bytes.IndexByte(run, '&') < 0 {
		return run, nil
	}
	out := make([]byte, 0, len(run))
	for {
		before, after, found := bytes.Cut(run, []byte("&"))
		out = append(out, before...)
		if !found {
			return out, nil
		}
		entity, rest, ended := bytes.Cut(after, []byte(";"))
		c := entities[string(entity)]
		if number, is := bytes.CutPrefix(entity, []byte("#")); is {
			base := 10
			if hex, is := bytes.CutPrefix(number, []byte("x")); is {
				number, base = hex, 16
			}
			n, err := strconv.ParseUint(string(number), base, 31)
			if err == nil {
				c = rune(n)
			}
		}
		if !ended || c == 0 {
			return nil, fmt.Errorf("unknown entity &%.10s", entity)
		}
		out = append(out, string(c)...)
		run = rest
	}
}

var entities = map[string]rune{"lt": '<', "gt": '>', "amp": '&', "quot": '"', "apos": '\''}
