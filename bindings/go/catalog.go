package esker

import "runtime"

// The keyspaces of a database: names and handles.

// keyspaceHandle keeps a handle of C while a Keyspace uses it.
type keyspaceHandle struct{ *keyspaceState }

// keyspaceState is what C has for a handle. It is freed with the database, or when no Keyspace uses it.
type keyspaceState struct{ c cKeyspace }

func (s *keyspaceState) release() { capiKeyspaceFree(s.c) }

// hold makes the database the owner of a handle. The caller has entered the database.
func (db *DB) hold(c cKeyspace) *keyspaceHandle {
	state := &keyspaceState{c}
	handle := &keyspaceHandle{state}
	db.add(state)
	owner := &db.owner
	runtime.AddCleanup(handle, func(state *keyspaceState) {
		if owner.remove(state) {
			state.release()
		}
	}, state)
	return handle
}

// handle returns the handle of a name.
func (db *DB) handle(name string, create bool) (*keyspaceHandle, error) {
	db.namesMu.Lock()
	known := db.names[name]
	db.namesMu.Unlock()
	if known != nil {
		return known, nil
	}
	if err := checkText("the name of the keyspace", name); err != nil {
		return nil, err
	}
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	// Not under the lock: making a keyspace waits for an exclusive transaction, whose calls may come here.
	c, err := capiKeyspace(db.c, name, create && !db.options.ReadOnly)
	if err != nil {
		return nil, err
	}
	handle := db.hold(c)
	db.namesMu.Lock()
	defer db.namesMu.Unlock()
	// The keyspace may have been renamed since.
	if present, err := capiKeyspaceName(c); err == nil && present == name {
		db.names[name] = handle
	}
	return handle, nil
}

// Keyspace returns a keyspace outside of transactions: each read sees the newest state, and each write is a
// commit of its own. A missing keyspace is created. The keyspace "default" always exists.
func (db *DB) Keyspace(name string) (*Keyspace, error) { return db.keyspace(name, true) }

// FindKeyspace is Keyspace, but does not create it. Error: ErrKeyspaceNotFound.
func (db *DB) FindKeyspace(name string) (*Keyspace, error) { return db.keyspace(name, false) }

func (db *DB) keyspace(name string, create bool) (*Keyspace, error) {
	handle, err := db.handle(name, create)
	if err != nil {
		return nil, err
	}
	// The name may have been known before the database was closed.
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	return &Keyspace{owner: &db.owner, db: db, handle: handle}, nil
}

// Keyspaces returns the names of all keyspaces in their order.
func (db *DB) Keyspaces() ([]string, error) {
	var names []string
	err := db.do(func(c cDB) (err error) {
		names, err = capiNames(c)
		return err
	})
	return names, err
}

// forget removes names from those that are known, before and after a change of the catalog.
func (db *DB) forget(names ...string) {
	db.namesMu.Lock()
	defer db.namesMu.Unlock()
	for _, name := range names {
		delete(db.names, name)
	}
}

// DropKeyspace drops a keyspace with all its entries. Error: ErrKeyspaceNotFound.
func (db *DB) DropKeyspace(name string) error {
	if err := checkText("the name of the keyspace", name); err != nil {
		return err
	}
	defer db.forget(name)
	return db.do(func(c cDB) error { return capiDrop(c, name) })
}

// RenameKeyspace renames a keyspace. Errors: ErrKeyspaceNotFound, ErrKeyspaceExists.
func (db *DB) RenameKeyspace(from, to string) error {
	if err := checkText("the name of the keyspace", from+to); err != nil {
		return err
	}
	defer db.forget(from, to)
	return db.do(func(c cDB) error { return capiRename(c, from, to) })
}
