// Package esker is an embedded, ordered, transactional key-value store: the Go binding of the Esker engine.
//
// A DB has keyspaces, each an ordered map from bytes to bytes. View runs a function in a transaction that
// reads, Update in a transaction that also writes. Update runs the function again after a conflict with
// another transaction, so the function must have no effect outside of the transaction.
//
//	db, err := esker.Open("data", nil)
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	err = db.Update(func(tx *esker.Tx) error {
//		users, err := tx.Keyspace("users")
//		if err != nil {
//			return err
//		}
//		return users.Put([]byte("ann"), []byte("1"))
//	})
//
// # Keyspaces without a transaction
//
// DB.Keyspace returns a keyspace of which each read sees the newest state, and each write is a commit of its
// own. It has the same methods.
//
// # Bytes
//
// Bytes that a call returns belong to the caller: they stay valid after the transaction, and may be changed.
// Bytes that a call takes may be used again when it returns.
//
// # Errors
//
// errors.Is compares an error with ErrNotFound, ErrConflict and so on. errors.As finds an *Error, which has
// the message, the file and the offset. A read of a missing key returns ErrNotFound.
//
// # Goroutines
//
// A DB, its keyspaces and read-only transactions may be used by any number of goroutines at the same time.
// Calls of one writing transaction wait for each other.
package esker
