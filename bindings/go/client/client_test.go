package client_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"esker.dev/esker/client"
)

// serve starts a server and returns its address. ESKER_PROGRAM is the program `esker`; without it, that of a
// checkout is used: cargo build -p esker-cli.
func serve(t *testing.T) string {
	t.Helper()
	program := os.Getenv("ESKER_PROGRAM")
	if program == "" {
		program = "../../../target/debug/esker"
	}
	server := exec.Command(program, "serve", "-d", t.TempDir()+"/db", "--port", "0", "--memory", "64mb")
	errs, err := server.StderrPipe()
	must(t, err)
	if err := server.Start(); err != nil {
		t.Fatalf("%v: build it with cargo build -p esker-cli, or set ESKER_PROGRAM", err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	lines := bufio.NewScanner(errs)
	for lines.Scan() {
		if port := regexp.MustCompile(`:(\d+)`).FindStringSubmatch(lines.Text()); port != nil {
			go func() {
				for lines.Scan() {
				}
			}()
			return "127.0.0.1:" + port[1]
		}
	}
	t.Fatal("the server did not start")
	return ""
}

func open(t *testing.T) *client.DB {
	t.Helper()
	db, err := client.Open(serve(t), nil)
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t testing.TB, got T, err error, want T) {
	t.Helper()
	if must(t, err); got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func wants(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func shown(entries func(func([]byte, []byte) bool)) string {
	var all []string
	entries(func(key, value []byte) bool {
		all = append(all, string(key)+"="+string(value))
		return true
	})
	return strings.Join(all, " ")
}

func b(text string) []byte { return []byte(text) }

func TestCalls(t *testing.T) {
	db := open(t)
	ks, err := db.Keyspace("a")
	must(t, err)
	for _, key := range []string{"a", "b", "c", "p1", "p2"} {
		must(t, ks.Put(b(key), b("v"+key)))
	}
	_, err = ks.Get(b("x"))
	wants(t, err, client.ErrNotFound)
	got, err := ks.Get(b("a"))
	equal(t, string(got), err, "va")
	many, err := ks.GetMany(b("c"), b("x"), b("a"))
	equal(t, fmt.Sprintf("%s", many), err, "[vc  va]")
	equal(t, shown(ks.Range(b("b"), b("p"))), ks.Err(), "b=vb c=vc")
	equal(t, shown(ks.Prefix(b("p"), client.Reverse, client.KeysOnly)), ks.Err(), "p2= p1=")
	equal(t, shown(ks.Range(nil, []byte{})), ks.Err(), "")
	equal(t, shown(ks.Range(b("b"), nil, client.Limit(2))), ks.Err(), "b=vb c=vc")
	equal(t, shown(ks.All(client.Limit(3), client.Reverse, client.Limit(1))), ks.Err(), "p2=vp2")
	equal(t, shown(ks.All(client.Limit(0))), ks.Err(), "")
	must(t, ks.DeleteRange(b("b"), nil))
	count, err := ks.Len()
	equal(t, count, err, 1)
	swapped, err := ks.CompareAndSwap(b("s"), nil, []byte{})
	equal(t, swapped, err, true)
	swapped, err = ks.CompareAndSwap(b("s"), nil, b("x"))
	equal(t, swapped, err, false)
	swapped, err = ks.CompareAndSwap(b("s"), []byte{}, nil)
	equal(t, swapped, err, true)
	sum, err := ks.Add(b("n"), -3)
	equal(t, sum, err, -3)

	log, err := db.Keyspace("log")
	must(t, err)
	must(t, log.SetMergeOperator("append"))
	must(t, errors.Join(log.Merge(b("k"), b("x")), log.Merge(b("k"), b("y"))))
	got, err = log.Get(b("k"))
	equal(t, string(got), err, "xy")
	_, err = db.FindKeyspace("missing")
	wants(t, err, client.ErrKeyspaceNotFound)
	must(t, db.DropKeyspace("log"))
	log, err = db.Keyspace("log")
	must(t, err)
	equal(t, shown(log.All()), log.Err(), "")
	must(t, errors.Join(db.Sync(), db.Compact()))
}

func TestLongRanges(t *testing.T) {
	db := open(t)
	must(t, db.Update(func(tx *client.Tx) error {
		ks, err := tx.Keyspace("a")
		for i := 0; i < 2000 && err == nil; i++ {
			err = ks.Put(fmt.Appendf(nil, "%05d", i), fmt.Append(nil, i))
		}
		return err
	}))
	ks, err := db.Keyspace("a")
	must(t, err)
	at := 0
	for key, value := range ks.All() {
		equal(t, string(key)+string(value), nil, fmt.Sprintf("%05d%d", at, at))
		// The range reads a snapshot.
		must(t, ks.Delete(fmt.Appendf(nil, "%05d", 1999-at)))
		at++
	}
	equal(t, at, ks.Err(), 2000)
	must(t, db.Update(func(tx *client.Tx) error {
		in, err := tx.In(ks)
		for i := range 1500 {
			err = errors.Join(err, in.Put(fmt.Appendf(nil, "%05d", i), nil))
		}
		at := 1500
		for key := range in.All(client.Reverse) {
			at--
			equal(t, string(key), nil, fmt.Sprintf("%05d", at))
		}
		equal(t, at, in.Err(), 0)
		return err
	}))
}

func TestTransactions(t *testing.T) {
	db := open(t)
	ks, err := db.Keyspace("a")
	must(t, err)
	one, err := db.Begin(client.Serializable)
	must(t, err)
	other, err := db.Begin(client.SnapshotIsolated)
	must(t, err)
	for _, tx := range []*client.Tx{one, other} {
		in, err := tx.In(ks)
		must(t, err)
		must(t, in.Put(b("a"), b("1")))
		point, err := tx.Savepoint()
		must(t, errors.Join(err, in.Put(b("b"), b("2")), tx.RollbackTo(point)))
		equal(t, shown(in.All()), in.Err(), "a=1")
	}
	must(t, one.Commit())
	wants(t, other.Commit(), client.ErrConflict)
	wants(t, other.Rollback(), client.ErrTxDone)
	wants(t, db.View(func(tx *client.Tx) error {
		in, err := tx.In(ks)
		must(t, err)
		return in.Put(b("a"), nil)
	}), client.ErrReadOnly)
	func() {
		defer func() { equal(t, fmt.Sprint(recover()), nil, "oh") }()
		_ = db.Update(func(tx *client.Tx) error {
			in, err := tx.In(ks)
			must(t, errors.Join(err, in.Put(b("z"), nil)))
			panic("oh")
		})
	}()
	equal(t, shown(ks.All()), ks.Err(), "a=1")

	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if err := db.Update(func(tx *client.Tx) error {
					in, err := tx.Keyspace("a")
					if err != nil {
						return err
					}
					_, err = in.Add(b("n"), 1)
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got, err := ks.Get(b("n"))
	equal(t, binary.LittleEndian.Uint64(got), err, 160)
}

// A server that sends damage, and a connection that ends, give errors.
func TestContexts(t *testing.T) {
	db := open(t)
	ks, err := db.Keyspace("a")
	must(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	never := func(*client.Tx) error {
		t.Error("the function ran")
		return nil
	}
	wants(t, db.ViewContext(ended, never), context.Canceled)
	wants(t, db.UpdateContext(ended, never), context.Canceled)
	for _, notices := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		wants(t, db.UpdateContext(ctx, func(tx *client.Tx) error {
			in, err := tx.In(ks)
			must(t, err)
			must(t, in.Put([]byte("new"), nil))
			cancel()
			for notices && err == nil {
				_, err = in.Contains([]byte("new"))
			}
			return err
		}), context.Canceled)
	}
	is, err := ks.Contains([]byte("new"))
	equal(t, is, err, false)

	// It does not run again after a conflict.
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	wants(t, db.UpdateContext(ctx, func(tx *client.Tx) error {
		if runs++; runs == 3 {
			cancel()
		}
		return client.ErrConflict
	}), context.Canceled)
	equal(t, runs, nil, 3)
	must(t, db.UpdateContext(t.Context(), func(tx *client.Tx) error { return nil }))
}

// A call waits for a server that does not answer until the context is done, and no longer.
func TestContextEndsAWait(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	var created atomic.Bool
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				// The last call that it answers creates the keyspace.
				for lines := bufio.NewScanner(c); lines.Scan(); {
					switch line := lines.Text(); {
					case line == "PING", line == "ES.BEGIN", line == "CREATE" && created.CompareAndSwap(false, true):
						_, _ = c.Write([]byte("+OK\r\n"))
					}
				}
			}()
		}
	}()
	db, err := client.Open(listener.Addr().String(), nil)
	must(t, err)
	defer db.Close()
	ks, err := db.Keyspace("a")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wants(t, db.ViewContext(ctx, func(tx *client.Tx) error {
		in, err := tx.In(ks)
		must(t, err)
		_, err = in.Get([]byte("x"))
		return err
	}), context.DeadlineExceeded)
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wants(t, db.UpdateContext(ctx, func(tx *client.Tx) error {
		_, err := tx.Keyspace("a")
		return err
	}), context.DeadlineExceeded)
}

func TestBadReplies(t *testing.T) {
	for _, reply := range []string{
		"$9999999999999\r\n", "$5\r\nab", "*3\r\n:1\r\n", "?\r\n", "*-7\r\n", "+OK\n", "$1\r\nabc", "",
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		go func() {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			request := make([]byte, 100)
			_, _ = c.Read(request)
			_, _ = c.Write([]byte("+PONG\r\n"))
			_, _ = c.Read(request)
			_, _ = c.Write([]byte(reply))
		}()
		db, err := client.Open(listener.Addr().String(), nil)
		must(t, err)
		_, err = db.Keyspaces()
		wants(t, err, client.ErrIO)
		must(t, listener.Close())
		wants(t, db.Sync(), client.ErrIO)
		must(t, db.Close())
		wants(t, db.Sync(), client.ErrClosed)
	}
	_, err := client.Open("127.0.0.1:1", nil)
	wants(t, err, client.ErrIO)
}
