package esker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"esker.dev/esker"
	"esker.dev/esker/tuple"
)

// temporary returns a database of an example.
func temporary() (*esker.DB, func()) {
	dir, err := os.MkdirTemp("", "esker")
	if err != nil {
		log.Fatal(err)
	}
	db, err := esker.Open(dir+"/data", &esker.Options{FeedBytes: 16 << 20})
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		if err := errors.Join(db.Close(), os.RemoveAll(dir)); err != nil {
			log.Fatal(err)
		}
	}
}

func Example() {
	db, end := temporary()
	defer end()
	users, err := db.Keyspace("users")
	if err != nil {
		log.Fatal(err)
	}
	if err := users.Put([]byte("ann"), []byte("1")); err != nil {
		log.Fatal(err)
	}
	err = db.Update(func(tx *esker.Tx) error {
		users, err := tx.Keyspace("users")
		if err != nil {
			return err
		}
		ann, err := users.Get([]byte("ann"))
		if err != nil {
			return err
		}
		return users.Put([]byte("bob"), append(ann, '2'))
	})
	if err != nil {
		log.Fatal(err)
	}
	for key, value := range users.Range([]byte("a"), []byte("c")) {
		fmt.Printf("%s = %s\n", key, value)
	}
	if err := users.Err(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// ann = 1
	// bob = 12
}

// A typical program of bbolt: records with numbers of their own, encoded as JSON, read by a cursor.
func Example_records() {
	type user struct {
		ID   int64
		Name string
	}
	db, end := temporary()
	defer end()
	create := func(u *user) error {
		return db.Update(func(tx *esker.Tx) error {
			users, err := tx.Keyspace("users")
			if err != nil {
				return err
			}
			// Instead of bbolt's NextSequence.
			sequences, err := tx.Keyspace("sequences")
			if err != nil {
				return err
			}
			if u.ID, err = sequences.Add([]byte("users"), 1); err != nil {
				return err
			}
			key, err := tuple.Pack(u.ID)
			if err != nil {
				return err
			}
			record, err := json.Marshal(u)
			if err != nil {
				return err
			}
			return users.Put(key, record)
		})
	}
	for _, name := range []string{"ann", "bob", "eve"} {
		if err := create(&user{Name: name}); err != nil {
			log.Fatal(err)
		}
	}
	err := db.View(func(tx *esker.Tx) error {
		users, err := tx.Keyspace("users")
		if err != nil {
			return err
		}
		start, err := tuple.Pack(2)
		if err != nil {
			return err
		}
		cursor := users.Cursor()
		for key, record := cursor.Seek(start); key != nil; key, record = cursor.Next() {
			fmt.Printf("%s\n", record)
		}
		return cursor.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// {"ID":2,"Name":"bob"}
	// {"ID":3,"Name":"eve"}
}

// A typical program of Badger: sessions that expire, a count by a merge operator, and a scan of a prefix.
func Example_sessions() {
	db, end := temporary()
	defer end()
	counts, err := db.Keyspace("counts")
	if err != nil {
		log.Fatal(err)
	}
	if err := counts.SetMergeOperator("append"); err != nil {
		log.Fatal(err)
	}
	err = db.Update(func(tx *esker.Tx) error {
		sessions, err := tx.Keyspace("sessions")
		if err != nil {
			return err
		}
		visits, err := tx.In(counts)
		if err != nil {
			return err
		}
		return errors.Join(
			sessions.PutTTL([]byte("ann/1"), []byte("desk"), time.Hour),
			sessions.PutTTL([]byte("ann/2"), []byte("phone"), time.Hour),
			sessions.PutTTL([]byte("bob/1"), []byte("desk"), time.Hour),
			visits.Merge([]byte("ann"), []byte("+")),
			visits.Merge([]byte("ann"), []byte("+")),
		)
	})
	if err != nil {
		log.Fatal(err)
	}
	sessions, err := db.FindKeyspace("sessions")
	if err != nil {
		log.Fatal(err)
	}
	for key, value := range sessions.Prefix([]byte("ann/"), esker.Reverse) {
		fmt.Printf("%s: %s\n", key, value)
	}
	visits, err := counts.Get([]byte("ann"))
	fmt.Printf("%s %v\n", visits, errors.Join(err, sessions.Err()))
	_, err = sessions.Get([]byte("eve/1"))
	fmt.Println(errors.Is(err, esker.ErrNotFound))
	// Output:
	// ann/2: phone
	// ann/1: desk
	// ++ <nil>
	// true
}

// The change feed keeps an index up to date, or another system.
func ExampleDB_Feed() {
	db, end := temporary()
	defer end()
	orders, err := db.Keyspace("orders")
	if err != nil {
		log.Fatal(err)
	}
	position, err := db.NewestCommit()
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(orders.Put([]byte("7"), []byte("new")), orders.Delete([]byte("7"))); err != nil {
		log.Fatal(err)
	}
	seen := 0
	for commit, err := range db.Feed(context.Background(), position) {
		if err != nil {
			log.Fatal(err)
		}
		for _, change := range commit.Changes {
			fmt.Printf("%d %s %q\n", change.Kind, change.Key, change.Value)
		}
		// A program stores commit.Seqno, to resume after it.
		if seen++; seen == 2 {
			break
		}
	}
	// Output:
	// 1 7 "new"
	// 3 7 ""
}

// A snapshot reads one state while others write.
func ExampleDB_Snapshot() {
	db, end := temporary()
	defer end()
	users, err := db.Keyspace("users")
	if err != nil {
		log.Fatal(err)
	}
	_ = users.Put([]byte("ann"), []byte("1"))
	snapshot, err := db.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Rollback()
	_ = users.DeleteRange(nil, nil)
	before, err := snapshot.In(users)
	if err != nil {
		log.Fatal(err)
	}
	then, _ := before.Len()
	now, _ := users.Len()
	fmt.Println(then, now)
	// Output: 1 0
}
