package client

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"esker.dev/esker/internal/status"
)

// The protocol of Redis, version 2, as far as the server speaks it to this client.

// Sizes of replies beyond these are refused: they are damage, not data.
const (
	bulkMax  = 4 << 30
	itemsMax = 64 << 20
	depthMax = 8
)

// conn is a connection. One goroutine at a time uses it.
type conn struct {
	net net.Conn
	in  *bufio.Reader
	out *bufio.Writer
	// The keyspace that ES commands use; empty at the begin.
	keyspace string
	// DB.catalog at the time when the keyspace was chosen.
	catalog int
	// Set by a failure after which requests and replies may not match.
	broken bool
}

func dial(address string, o *Options) (*conn, error) {
	dialer := &net.Dialer{Timeout: o.DialTimeout}
	var raw net.Conn
	var err error
	if o.TLS != nil {
		raw, err = tls.DialWithDialer(dialer, "tcp", address, o.TLS)
	} else {
		raw, err = dialer.Dial("tcp", address)
	}
	if err != nil {
		return nil, err
	}
	c := &conn{net: raw, in: bufio.NewReaderSize(raw, 64<<10), out: bufio.NewWriterSize(raw, 64<<10)}
	hello := []any{"PING"}
	if o.Password != "" {
		hello = []any{"AUTH", o.Password}
		if o.User != "" {
			hello = []any{"AUTH", o.User, o.Password}
		}
	}
	if _, err := c.call(hello...); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

// send writes a request into the buffer. Words are strings or []byte.
func (c *conn) send(words ...any) {
	fmt.Fprintf(c.out, "*%d\r\n", len(words))
	for _, word := range words {
		switch w := word.(type) {
		case string:
			fmt.Fprintf(c.out, "$%d\r\n%s\r\n", len(w), w)
		case []byte:
			fmt.Fprintf(c.out, "$%d\r\n", len(w))
			_, _ = c.out.Write(w)
			_, _ = c.out.WriteString("\r\n")
		}
	}
}

// call sends a request, after what is in the buffer, and returns its reply.
func (c *conn) call(words ...any) (any, error) {
	c.send(words...)
	if err := c.flush(); err != nil {
		return nil, err
	}
	return c.receive()
}

func (c *conn) flush() error {
	if c.broken {
		return errBroken
	}
	if err := c.out.Flush(); err != nil {
		return c.fail(err)
	}
	return nil
}

var errBroken = &Error{Code: ErrIO, Message: "the connection has failed"}

// fail notes that the connection cannot be used any longer.
func (c *conn) fail(err error) error {
	c.broken = true
	_ = c.net.Close()
	return &Error{Code: ErrIO, Message: err.Error(), cause: err}
}

// receive returns a reply: nil, []byte, string, int64 or []any. Errors of the server are errors.
func (c *conn) receive() (any, error) {
	if c.broken {
		return nil, errBroken
	}
	reply, err := c.read(0)
	var refused *Error
	if err != nil && !errors.As(err, &refused) {
		return nil, c.fail(err)
	}
	return reply, err
}

func (c *conn) read(depth int) (any, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line, isWhole := strings.CutSuffix(line, "\r\n")
	if !isWhole || line == "" || depth > depthMax {
		return nil, fmt.Errorf("this is no reply: %q", line)
	}
	switch kind, text := line[0], line[1:]; kind {
	case '+':
		return text, nil
	case '-':
		return nil, serverError(text)
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '$':
		return c.readBulk(text)
	case '*':
		return c.readArray(text, depth)
	}
	return nil, fmt.Errorf("this is no reply: %q", line)
}

// length reads a length. -1: there is no value.
func length(text string, limit int64) (int, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < -1 || n > limit {
		return 0, fmt.Errorf("this is no length: %q", text)
	}
	return int(n), nil
}

func (c *conn) readBulk(text string) (any, error) {
	n, err := length(text, bulkMax)
	if err != nil || n < 0 {
		return nil, err
	}
	// Grows as bytes arrive, so that a wrong length does not take the memory.
	bulk := make([]byte, min(n, 1<<20))
	for read := 0; ; {
		got, err := io.ReadFull(c.in, bulk[read:])
		if read += got; err != nil {
			return nil, err
		}
		if read == n {
			break
		}
		bulk = append(bulk, make([]byte, min(n-read, read))...)
	}
	var end [2]byte
	if _, err := io.ReadFull(c.in, end[:]); err != nil {
		return nil, err
	}
	if string(end[:]) != "\r\n" {
		return nil, errors.New("a reply has no end")
	}
	return bulk[:n:n], nil
}

func (c *conn) readArray(text string, depth int) (any, error) {
	n, err := length(text, itemsMax)
	if err != nil || n < 0 {
		return nil, err
	}
	items := make([]any, 0, min(n, 4096))
	for range n {
		item, err := c.read(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// within limits how long the next reply may take. 0: no limit.
func (c *conn) within(patience time.Duration) {
	var deadline time.Time
	if patience > 0 {
		deadline = time.Now().Add(patience)
	}
	_ = c.net.SetReadDeadline(deadline)
}

var codes = map[string]Status{
	"CONFLICT": status.Conflict, "DEADLOCK": status.Deadlock, "LOCKTIMEOUT": status.LockTimeout,
	"READONLY": status.ReadOnly, "MISCONF": status.Poisoned, "TRUNCATED": status.Gone,
	"FORKED": status.FeedAhead, "TOOLARGE": status.Gone, "SYNTAX": status.Invalid,
}

// serverError makes an error of a line such as "CONFLICT text".
func serverError(line string) error {
	word, _, _ := strings.Cut(line, " ")
	code, ok := codes[word]
	if !ok {
		code = status.Other
	}
	return &Error{Code: code, Message: line}
}
