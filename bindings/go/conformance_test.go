package esker_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"esker.dev/esker"
	"esker.dev/esker/tuple"
)

// call is a line of bindings/conformance.jsonl.
type call struct {
	Do                             string
	Keyspace, From, To, Operator   string
	Key, Value, Start, End, Prefix *string
	Expected, Operand              *string
	Keys                           []string
	TTL                            *int64 `json:"ttl_ms"`
	By, Kind                       string
	Txn                            *int64
	Savepoint                      int64
	Reverse                        bool
	Limit                          *int
	Ms                             int64
	Fields                         []map[string]any
	Error                          string
	Is                             any
}

// replayer runs the calls of the file against one database.
type replayer struct {
	t          testing.TB
	db         *esker.DB
	options    *esker.Options
	path       string
	txns       map[int64]*esker.Tx
	savepoints map[[2]int64]esker.Savepoint
	mark       uint64
	copies     int
}

var statusNames = map[string]esker.Status{
	"invalid": esker.ErrInvalid, "io": esker.ErrIO, "no_space": esker.ErrNoSpace, "corrupt": esker.ErrCorrupt,
	"read_only": esker.ErrReadOnly, "conflict": esker.ErrConflict, "deadlock": esker.ErrDeadlock,
	"lock_timeout": esker.ErrLockTimeout, "too_long": esker.ErrTooLong, "merge": esker.ErrMerge,
	"keyspace_not_found": esker.ErrKeyspaceNotFound, "keyspace_exists": esker.ErrKeyspaceExists,
	"gone": esker.ErrGone, "no_feed": esker.ErrNoFeed, "feed_ahead": esker.ErrFeedAhead,
	"exists": esker.ErrExists, "not_found": esker.ErrNotFound,
}

var kinds = map[string]esker.TxKind{
	"serializable": esker.Serializable, "snapshot": esker.SnapshotIsolated, "exclusive": esker.Exclusive,
	"read_only": esker.ReadOnly, "write_only": esker.WriteOnly,
}

// TestConformance replays the calls that all bindings replay.
func TestConformance(t *testing.T) {
	file, err := os.Open("../conformance.jsonl")
	must(t, err)
	defer file.Close()
	options := &esker.Options{Durability: esker.NoWait, FeedBytes: 64 << 20, FeedAge: time.Hour}
	r := &replayer{t: t, options: options, path: filepath.Join(t.TempDir(), "db")}
	r.open()
	defer func() { must(t, errors.Join(r.db.Check(), r.db.Close())) }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	number := 0
	for lines.Scan() {
		number++
		var c call
		must(t, json.Unmarshal(lines.Bytes(), &c))
		got, err := r.do(&c)
		if c.Error != "" {
			if want, ok := statusNames[c.Error]; !ok || !errors.Is(err, want) {
				t.Fatalf("line %d: %s: got %v", number, lines.Text(), err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("line %d: %s: got %v", number, lines.Text(), err)
		}
		if strings.Contains(lines.Text(), `"is":`) && !reflect.DeepEqual(generic(t, got), c.Is) {
			t.Fatalf("line %d: %s: got %v", number, lines.Text(), generic(t, got))
		}
	}
	must(t, lines.Err())
	if number < 100 {
		t.Fatalf("the file has %d lines", number)
	}
	t.Logf("%d calls", number)
}

// generic turns a reply into what JSON makes of it.
func generic(t testing.TB, reply any) any {
	text := value(json.Marshal(reply))(t)
	var back any
	must(t, json.Unmarshal(text, &back))
	return back
}

func (r *replayer) open() {
	db, err := esker.Open(r.path, r.options)
	must(r.t, err)
	r.db, r.txns = db, map[int64]*esker.Tx{}
	r.savepoints = map[[2]int64]esker.Savepoint{}
}

func (r *replayer) bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	return append([]byte{}, value(hex.DecodeString(*text))(r.t)...)
}

func shownHex(b []byte) any {
	if b == nil {
		return nil
	}
	return hex.EncodeToString(b)
}

func (r *replayer) keyspace(c *call) (*esker.Keyspace, error) {
	ks, err := r.db.Keyspace(c.Keyspace)
	if err != nil || c.Txn == nil {
		return ks, err
	}
	return r.txns[*c.Txn].In(ks)
}

func (r *replayer) do(c *call) (any, error) {
	switch c.Do {
	case "keyspace":
		_, err := r.db.Keyspace(c.Keyspace)
		return nil, err
	case "rename":
		return nil, r.db.RenameKeyspace(c.From, c.To)
	case "drop":
		return nil, r.db.DropKeyspace(c.Keyspace)
	case "names":
		return r.db.Keyspaces()
	case "sleep":
		time.Sleep(time.Duration(c.Ms) * time.Millisecond)
		return nil, nil
	case "reopen":
		must(r.t, r.db.Close())
		r.open()
		return nil, nil
	case "checkpoint":
		r.copies++
		path := fmt.Sprintf("%s-copy-%d", r.path, r.copies)
		must(r.t, errors.Join(r.db.Checkpoint(path), r.db.Close()))
		r.path = path
		r.open()
		return nil, nil
	case "mark":
		mark, err := r.db.NewestCommit()
		r.mark = mark
		return nil, err
	case "feed":
		return r.feed()
	case "pack":
		fields := r.fields(c.Fields)
		packed, err := fields.Pack()
		must(r.t, err)
		unpacked := value(tuple.Unpack(value(hex.DecodeString(c.Is.(string)))(r.t)))(r.t)
		if again := value(unpacked.Pack())(r.t); !bytes.Equal(again, packed) || len(unpacked) != len(fields) {
			r.t.Fatalf("%v is unpacked to %v", fields, unpacked)
		}
		return shownHex(packed), nil
	case "unpack":
		_, err := tuple.Unpack(r.bytes(c.Key))
		if errors.Is(err, tuple.ErrInvalid) {
			err = esker.ErrInvalid
		}
		return nil, err
	case "begin", "savepoint", "rollback_to", "commit", "rollback":
		return nil, r.control(c)
	}
	ks, err := r.keyspace(c)
	if err != nil {
		return nil, err
	}
	return r.access(ks, c)
}

func (r *replayer) control(c *call) error {
	if c.Do == "begin" {
		tx, err := r.db.Begin(kinds[c.Kind])
		r.txns[*c.Txn] = tx
		return err
	}
	tx, at := r.txns[*c.Txn], [2]int64{*c.Txn, c.Savepoint}
	switch c.Do {
	case "savepoint":
		point, err := tx.Savepoint()
		r.savepoints[at] = point
		return err
	case "rollback_to":
		return tx.RollbackTo(r.savepoints[at])
	case "rollback":
		return tx.Rollback()
	}
	return tx.Commit()
}

// orNull makes null of a missing key.
func orNull(value []byte, err error) (any, error) {
	if errors.Is(err, esker.ErrNotFound) {
		return nil, nil
	}
	return shownHex(value), err
}

func (r *replayer) access(ks *esker.Keyspace, c *call) (any, error) {
	key := r.bytes(c.Key)
	switch c.Do {
	case "operator":
		return nil, ks.SetMergeOperator(c.Operator)
	case "put":
		if c.TTL != nil {
			return nil, ks.PutTTL(key, r.bytes(c.Value), time.Duration(*c.TTL)*time.Millisecond)
		}
		return nil, ks.Put(key, r.bytes(c.Value))
	case "get":
		return orNull(ks.Get(key))
	case "contains":
		return ks.Contains(key)
	case "many":
		var keys [][]byte
		for _, key := range c.Keys {
			keys = append(keys, r.bytes(&key))
		}
		values, err := ks.GetMany(keys...)
		all := []any{}
		for _, value := range values {
			all = append(all, shownHex(value))
		}
		return all, err
	case "delete":
		return nil, ks.Delete(key)
	case "remove":
		return orNull(ks.Remove(key))
	case "delete_range":
		return nil, ks.DeleteRange(r.bytes(c.Start), r.bytes(c.End))
	case "delete_prefix":
		return nil, ks.DeletePrefix(r.bytes(c.Prefix))
	case "merge":
		return nil, ks.Merge(key, r.bytes(c.Operand))
	case "swap":
		return ks.CompareAndSwap(key, r.bytes(c.Expected), r.bytes(c.Value))
	case "add":
		by := value(strconv.ParseInt(c.By, 10, 64))(r.t)
		sum, err := ks.Add(key, by)
		return strconv.FormatInt(sum-by, 10), err
	case "ttl":
		ttl, err := ks.TTL(key)
		switch {
		case errors.Is(err, esker.ErrNotFound):
			return "missing", nil
		case ttl == esker.Forever:
			return "none", err
		}
		return "some", err
	case "len":
		return ks.Len()
	case "scan":
		return r.scan(ks, c)
	}
	return nil, fmt.Errorf("an unknown call: %s", c.Do)
}

func (r *replayer) scan(ks *esker.Keyspace, c *call) (any, error) {
	var options []esker.RangeOption
	if c.Reverse {
		options = append(options, esker.Reverse)
	}
	if c.Limit != nil {
		options = append(options, esker.Limit(*c.Limit))
	}
	entries := ks.Range(r.bytes(c.Start), r.bytes(c.End), options...)
	if c.Prefix != nil {
		entries = ks.Prefix(r.bytes(c.Prefix), options...)
	}
	all := [][]any{}
	for key, value := range entries {
		all = append(all, []any{shownHex(key), shownHex(value)})
	}
	if c.Txn != nil {
		return all, nil
	}
	return all, ks.Err()
}

// feed returns the commits between the mark and now.
func (r *replayer) feed() (any, error) {
	names := map[uint32]string{}
	for _, name := range value(r.db.Keyspaces())(r.t) {
		names[value(value(r.db.Keyspace(name))(r.t).ID())(r.t)] = name
	}
	must(r.t, r.db.Sync())
	newest := value(r.db.NewestCommit())(r.t)
	changeNames := map[esker.ChangeKind]string{
		esker.ChangePut: "put", esker.ChangeMerge: "merge", esker.ChangeDelete: "delete",
		esker.ChangeDeleteRange: "delete_range",
	}
	all := [][]any{}
	if newest <= r.mark {
		return all, nil
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for commit, err := range r.db.Feed(ctx, r.mark) {
		if err != nil {
			return all, err
		}
		changes := []any{}
		for _, change := range commit.Changes {
			if name, ok := changeNames[change.Kind]; ok {
				changes = append(changes, map[string]any{
					"change": name, "keyspace": names[change.KeyspaceID],
					"key": shownHex(change.Key), "value": shownHex(change.Value),
				})
			}
		}
		if len(changes) > 0 {
			all = append(all, changes)
		}
		if commit.Seqno >= newest {
			break
		}
	}
	return all, nil
}

// fields makes a tuple of its description.
func (r *replayer) fields(described []map[string]any) tuple.Tuple {
	fields := tuple.Tuple{}
	for _, field := range described {
		fields = append(fields, r.field(field))
	}
	return fields
}

func (r *replayer) field(described map[string]any) any {
	for kind, of := range described {
		raw := func() []byte { return value(hex.DecodeString(of.(string)))(r.t) }
		switch kind {
		case "bytes":
			return raw()
		case "text":
			return of.(string)
		case "int":
			if unsigned, err := strconv.ParseUint(of.(string), 10, 64); err == nil {
				return unsigned
			}
			return value(strconv.ParseInt(of.(string), 10, 64))(r.t)
		case "float":
			return math.Float32frombits(uint32(value(strconv.ParseUint(of.(string), 16, 32))(r.t)))
		case "double":
			return math.Float64frombits(value(strconv.ParseUint(of.(string), 16, 64))(r.t))
		case "bool":
			return of.(bool)
		case "uuid":
			return tuple.UUID(raw())
		case "tuple":
			inner := tuple.Tuple{}
			for _, field := range of.([]any) {
				if field == nil {
					inner = append(inner, nil)
					continue
				}
				inner = append(inner, r.field(field.(map[string]any)))
			}
			return inner
		}
	}
	return nil
}
