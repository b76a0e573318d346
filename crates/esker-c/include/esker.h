/* Esker: an embedded, ordered, transactional key-value engine. The C API.
 *
 * - A call returns a status: ESKER_OK, ESKER_NOT_FOUND, or what failed. `error` may be NULL. If the call fails it is
 *   set to an error with the message, the file and the offset, to be freed with esker_error_free; else it is left
 *   as it was.
 * - What a call returns by a pointer is set only if the call succeeds, unless its comment says otherwise.
 * - Keys and values are bytes: esker_slice for those of the caller, which are borrowed for the call, and
 *   esker_value for those of the library. Texts are UTF-8 and end with a zero byte.
 * - `txn` may be NULL: a read then sees the newest state, and a write is a commit of its own.
 * - Databases, keyspaces and read-only transactions may be used by any number of threads at the same time, all
 *   other handles by one at a time. Free a database last.
 */

#ifndef ESKER_H
#define ESKER_H

/* Made by cbindgen of the Rust code. Do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// `key` was set to `value`.
#define ESKER_CHANGE_PUT 1

// `value` was merged into `key`, as an operand.
#define ESKER_CHANGE_MERGE 2

// `key` was removed, or did not exist.
#define ESKER_CHANGE_DELETE 3

// `key` was removed because it has expired.
#define ESKER_CHANGE_EXPIRE 4

// All keys from `key` on, below `value`, were removed. NULL as `value.data`: to the end of the keyspace.
#define ESKER_CHANGE_DELETE_RANGE 5

// The keyspace got the name `value`: it was created or renamed.
#define ESKER_CHANGE_NAMED 6

// The name `value` is free: its keyspace was dropped or renamed. `keyspace` is 0.
#define ESKER_CHANGE_UNNAMED 7

// Another change of the catalog, such as an option of a keyspace.
#define ESKER_CHANGE_OTHER 8

// Walks from the last key to the first.
#define ESKER_ITER_REVERSE 1

// Gives keys only; large values are not read.
#define ESKER_ITER_KEYS 2

// Greatest length of a key in bytes.
#define ESKER_KEY_BYTES_MAX 65535

// When a commit is acknowledged: the default of the database.
#define ESKER_DURABILITY_DEFAULT 0

// A commit waits until it is on the disk.
#define ESKER_DURABILITY_SYNC 1

// A commit waits until the operating system has it: a power loss can take the last 100 ms.
#define ESKER_DURABILITY_BUFFERED 2

// A commit does not wait: a kill of the process can take the last commits.
#define ESKER_DURABILITY_NONE 3

// The absent value.
#define ESKER_FIELD_NULL 0

// Bytes, in `bytes`.
#define ESKER_FIELD_BYTES 1

// UTF-8 text, in `bytes`.
#define ESKER_FIELD_TEXT 2

// A tuple, encoded in `bytes`: see esker_tuple_unpack.
#define ESKER_FIELD_TUPLE 3

// An integer, in `integer`.
#define ESKER_FIELD_INT 4

// An integer from 2^63 to 2^64 - 1, in `integer` as its bits.
#define ESKER_FIELD_UINT 5

// A float of 32 bits, in `number`.
#define ESKER_FIELD_FLOAT 6

// A float of 64 bits, in `number`.
#define ESKER_FIELD_DOUBLE 7

// A boolean: `integer` is 0 or 1.
#define ESKER_FIELD_BOOL 8

// A UUID: 16 bytes, in `bytes`.
#define ESKER_FIELD_UUID 9

// Reads and writes with the isolation of the database.
#define ESKER_TXN_DEFAULT 0

// Reads and writes as if no other transaction ran at the same time.
#define ESKER_TXN_SERIALIZABLE 1

// Reads and writes on a snapshot: permits write skew.
#define ESKER_TXN_SNAPSHOT 2

// Reads and writes while all other commits wait. It has no conflicts.
#define ESKER_TXN_EXCLUSIVE 3

// Reads one state. Any number of threads may use it at the same time.
#define ESKER_TXN_READ_ONLY 4

// Writes without reading: a batch.
#define ESKER_TXN_WRITE_ONLY 5

// Same as ESKER_TXN_EXCLUSIVE, for programs whose tasks share threads. Other writes of the thread that used
// an exclusive transaction last pass it, so that a thread does not wait for itself. They wait for one of
// this kind, between its calls: they may be writes of another task.
#define ESKER_TXN_EXCLUSIVE_OF_TASK 6

// How a call ended. The first four are no errors. Numbers keep their meaning; expect new ones.
typedef enum {
    // Done.
    ESKER_OK = 0,
    // There is no such key, entry or commit. No error is made.
    ESKER_NOT_FOUND = 1,
    // The key has another value than esker_compare_and_swap expected. No error is made.
    ESKER_NOT_SWAPPED = 2,
    // The buffer is too small for the next entry. No error is made.
    ESKER_BUFFER_TOO_SMALL = 3,
    // An argument or option is not valid: a mistake of the caller.
    ESKER_INVALID = 4,
    // The operating system refused an operation.
    ESKER_IO = 5,
    // No space left. Acknowledged data is safe, reads continue.
    ESKER_NO_SPACE = 6,
    // Bytes on disk are not what was written: see esker_error_file and esker_error_offset.
    ESKER_CORRUPT = 7,
    // A file was written by a newer version of Esker.
    ESKER_UNSUPPORTED_VERSION = 8,
    // Encrypted files cannot be read, or files that should be encrypted are not.
    ESKER_ENCRYPTION = 9,
    // The directory holds no database, or an unfinished one.
    ESKER_NO_DATABASE = 10,
    // Another process, or another handle in this one, has the database open.
    ESKER_LOCKED = 11,
    // The database was opened to read it.
    ESKER_READ_ONLY = 12,
    // Another commit has changed what the transaction wrote or read: run it again.
    ESKER_CONFLICT = 13,
    // The transaction waits in a cycle of locks: drop it, and run it again.
    ESKER_DEADLOCK = 14,
    // A lock or turn was not free in time.
    ESKER_LOCK_TIMEOUT = 15,
    // A failure has stopped writes; reads still work. Open the database again.
    ESKER_POISONED = 16,
    // The key is longer than ESKER_KEY_BYTES_MAX, or the value longer than 4 GiB - 1.
    ESKER_TOO_LONG = 17,
    // There is no keyspace of this name, or it was dropped.
    ESKER_KEYSPACE_NOT_FOUND = 18,
    // There is a keyspace of this name already.
    ESKER_KEYSPACE_EXISTS = 19,
    // A merge operator refused an operand or value, or the keyspace or program lacks the operator.
    ESKER_MERGE = 20,
    // The change feed, or a keyspace's history, no longer has what was asked for, or never had.
    ESKER_GONE = 21,
    // The database has no change feed: open it with esker_options_set_feed.
    ESKER_NO_FEED = 22,
    // The reader of the change feed knows of commits that this database does not have.
    ESKER_FEED_AHEAD = 23,
    // Something exists where a call would create a file or directory.
    ESKER_EXISTS = 24,
    // A bug: a thread or a function panicked.
    ESKER_PANICKED = 25,
    // This process was forked from the one that opened the database: open it again in the child.
    ESKER_FORKED = 26,
    // The database was closed.
    ESKER_CLOSED = 27,
    // An error that has no number of its own.
    ESKER_OTHER = 28,
} esker_status;

// A position among the keys, which moves both ways. It sees the state at the time when it was made. One
// thread at a time may use it. Free it with esker_cursor_free.
typedef struct esker_cursor esker_cursor;

// An open database. Any number of threads may use it at the same time. Close it with esker_close, after all
// transactions, iterators and feeds that were made of it have been freed.
typedef struct esker_db esker_db;

// An error of a call. Free it with esker_error_free.
typedef struct esker_error esker_error;

// A reader of the change feed. One thread at a time may use it. Free it with esker_feed_free.
typedef struct esker_feed esker_feed;

// A walk in one direction over the state of its begin, for one thread at a time. See esker_iter_free.
typedef struct esker_iter esker_iter;

// A keyspace. Any number of threads may use it. Free it with esker_keyspace_free; the data stays.
typedef struct esker_keyspace esker_keyspace;

// How esker_open opens a database. Free it with esker_options_free; esker_open leaves it as it is.
typedef struct esker_options esker_options;

// What keeps the bytes of an esker_value alive.
typedef struct esker_owner esker_owner;

// The fields of a key. One thread at a time may use it. Free it with esker_tuple_free.
typedef struct esker_tuple esker_tuple;

// Reads and writes that belong together. Unless it is read only, one thread at a time may use it. Free it
// with esker_txn_free, after its iterators. Without a commit its writes have no effect.
typedef struct esker_txn esker_txn;

// A function of the caller that takes a name.
typedef void (*esker_name_function)(void *context, const char *name);

// A function of the caller that takes a figure.
typedef void (*esker_figure_function)(void *context, const char *name, double value);

// Bytes of the caller, borrowed for one call: `data` points to `len` bytes that nothing changes during the
// call. `data` may be NULL if `len` is 0.
typedef struct {
    // The first byte.
    const uint8_t *data;
    // Number of bytes.
    size_t len;
} esker_slice;

// A change made by a commit.
typedef struct {
    // ESKER_CHANGE_... A program has to expect new kinds.
    uint32_t kind;
    // The number of the keyspace: see esker_keyspace_id.
    uint32_t keyspace;
    // The key.
    esker_slice key;
    // The value.
    esker_slice value;
    // When a value that was put expires, in milliseconds since 1970. 0: never.
    uint64_t expires_at;
    // When an operand was merged, in milliseconds since 1970.
    uint64_t merged_at;
    // Milliseconds that a value which begins with this operand lasts, after `merged_at`. 0: for ever.
    uint64_t lifetime;
} esker_change;

// The keys from `start` on, below `end`. A `data` that is NULL stands for no bound.
typedef struct {
    // The first key.
    esker_slice start;
    // The first key behind the range.
    esker_slice end;
} esker_range;

// Memory of the caller that a call fills.
typedef struct {
    // The first byte. The bytes need no value.
    uint8_t *data;
    // Number of bytes.
    size_t len;
} esker_buffer;

// Bytes that the library lends: `len` bytes at `data`, until esker_value_free.
//
// `data` is NULL if there is no value. An empty value has a `data` that is not NULL.
typedef struct {
    // The first byte.
    const uint8_t *data;
    // Number of bytes.
    size_t len;
    // What keeps the bytes alive.
    esker_owner *owner;
} esker_value;

// Merges `count` operands, oldest first, into `existing`, whose `data` is NULL if the key has no value.
//
// Writes the new value to `result` and returns its length. If the length is larger than `result.len`, the
// function is called again with a buffer of that size. UINT64_MAX: an operand or value is not valid.
//
// It is called by any thread, and also while keys are read. The result may depend on the arguments only.
typedef uint64_t (*esker_merge_function)(void *context,
                                         esker_slice existing,
                                         const esker_slice *operands,
                                         size_t count,
                                         esker_buffer result);

// A field of a tuple.
typedef struct {
    // ESKER_FIELD_...
    uint32_t kind;
    // Bytes, text, an encoded tuple, a UUID.
    esker_slice bytes;
    // An integer or a boolean.
    int64_t integer;
    // A float.
    double number;
} esker_field;

// A function of the caller that reads and writes in a transaction. ESKER_OK commits; any other status rolls
// back, and esker_transact returns it.
typedef int32_t (*esker_transact_function)(void *context, esker_txn *txn);

// A value and what replaces it. `data` NULL stands for no value: the key must be missing, or is removed.
typedef struct {
    esker_slice expected;
    esker_slice new_;
} esker_swap;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of the library, such as "0.1.0". It lives for ever.
const char *esker_version(void);

// Opens the database in a directory. `options` may be NULL. A missing database is created.
//
// Errors: ESKER_LOCKED if it is open elsewhere, ESKER_NO_DATABASE if it is missing and not created,
// ESKER_CORRUPT, ESKER_ENCRYPTION, ESKER_IO, ESKER_NO_SPACE.
esker_status esker_open(const char *path,
                        const esker_options *options,
                        esker_db **db,
                        esker_error **error);

// Opens a database in memory, which ends when it is closed. `options` may be NULL.
esker_status esker_open_in_memory(const esker_options *options, esker_db **db, esker_error **error);

// Makes all commits durable, closes the database and frees the handle, whatever it returns. Keyspaces that
// are not freed yet answer ESKER_CLOSED. NULL is allowed.
esker_status esker_close(esker_db *db,
                         esker_error **error);

// Makes all earlier commits durable.
esker_status esker_sync(const esker_db *db, esker_error **error);

// Compacts the whole database into one run without garbage. Takes long for a large database.
esker_status esker_compact(const esker_db *db, esker_error **error);

// Makes a database in a new directory that is a copy as of now. Tables are linked where that is possible.
esker_status esker_checkpoint(const esker_db *db,
                              const char *directory,
                              esker_error **error);

// Reads all files and checks their checksums and structure. ESKER_CORRUPT: the message has the first damage
// with its file, and the number of others; esker_error_file is the directory.
esker_status esker_check(const esker_db *db,
                         esker_error **error);

// Salvages what can be read of a damaged database, which must not be open, into a new one in the directory
// `target`, which must be missing or empty. The source is not changed. `esker repair` also lists what was
// lost.
//
// Errors: ESKER_LOCKED, ESKER_NO_DATABASE if the source holds no part of a database, ESKER_INVALID if the
// target is not empty, and those of writing.
esker_status esker_repair(const char *source,
                          const char *target,
                          esker_error **error);

// Removes a database, which may be damaged: its files, and the directory if nothing else is in it.
//
// Errors: ESKER_LOCKED if it is open, ESKER_NO_DATABASE if there is no file of a database, ESKER_IO.
esker_status esker_destroy(const char *directory, esker_error **error);

// Calls a function with the name of each keyspace, in their order.
esker_status esker_keyspace_names(const esker_db *db,
                                  esker_name_function function,
                                  void *context,
                                  esker_error **error);

// Calls a function with each figure of the database: sizes, counts, times. `esker stats` explains them.
esker_status esker_stats(const esker_db *db,
                         esker_figure_function function,
                         void *context,
                         esker_error **error);

// Returns the keyspace of a name, and creates it if it is missing. The name "default" always exists.
esker_status esker_keyspace_open(const esker_db *db,
                                 const char *name,
                                 esker_keyspace **keyspace,
                                 esker_error **error);

// Returns the keyspace of a name. Error: ESKER_KEYSPACE_NOT_FOUND.
esker_status esker_keyspace_find(const esker_db *db,
                                 const char *name,
                                 esker_keyspace **keyspace,
                                 esker_error **error);

// Drops a keyspace with all its entries. Error: ESKER_KEYSPACE_NOT_FOUND.
esker_status esker_keyspace_drop(const esker_db *db, const char *name, esker_error **error);

// Renames a keyspace. Errors: ESKER_KEYSPACE_NOT_FOUND, ESKER_KEYSPACE_EXISTS.
esker_status esker_keyspace_rename(const esker_db *db,
                                   const char *from,
                                   const char *to,
                                   esker_error **error);

// Sets `seqno` to the number of the newest commit that readers see.
void esker_newest_commit(const esker_db *db, uint64_t *seqno);

// Returns the status that the call returned.
esker_status esker_error_status(const esker_error *error);

// Returns the message: what failed and what to do about it. It lives as long as the error.
const char *esker_error_text(const esker_error *error);

// Returns the file or directory that the error is about, or NULL. It lives as long as the error.
const char *esker_error_file(const esker_error *error);

// Sets `offset` to the position of damage in esker_error_file. Returns false if the error has none.
bool esker_error_offset(const esker_error *error, uint64_t *offset);

// Returns the number of the operating system's error (errno), or 0.
int32_t esker_error_errno(const esker_error *error);

// Frees an error. NULL is allowed.
void esker_error_free(esker_error *error);

// Begins to read the commits after the commit `after`; 0 is before the first one. Store the number of the
// last commit that was processed, and resume after it.
//
// Errors: ESKER_NO_FEED; ESKER_GONE if the commits are no longer kept; ESKER_FEED_AHEAD.
esker_status esker_feed_after(const esker_db *db,
                              uint64_t after,
                              esker_feed **feed,
                              esker_error **error);

// Moves to the next commit and sets `seqno` to its number. ESKER_NOT_FOUND: none came in `milliseconds`.
esker_status esker_feed_next(esker_feed *feed,
                             uint64_t milliseconds,
                             uint64_t *seqno,
                             esker_error **error);

// Sets `change` to the next change of the commit. What it points to is valid until the next call for this
// reader. ESKER_NOT_FOUND: the commit has no more changes.
esker_status esker_feed_change(esker_feed *feed,
                               esker_change *change,
                               esker_error **error);

// Frees a reader. NULL is allowed.
void esker_feed_free(esker_feed *feed);

// Begins a walk over the keys of a range. `flags`: ESKER_ITER_REVERSE, ESKER_ITER_KEYS, both or 0.
esker_status esker_iter_new(const esker_keyspace *keyspace,
                            const esker_txn *txn,
                            esker_range range,
                            uint32_t flags,
                            esker_iter **iter,
                            esker_error **error);

// Begins a walk over the keys that begin with a prefix.
esker_status esker_iter_prefix(const esker_keyspace *keyspace,
                               const esker_txn *txn,
                               esker_slice prefix,
                               uint32_t flags,
                               esker_iter **iter,
                               esker_error **error);

// Ends a walk after `entries` entries, and reads nothing behind them. Call it before the first one is read.
void esker_iter_set_limit(esker_iter *iter,
                          uint64_t entries);

// Sets `key` and `value`, which may be NULL, to the next entry. Both are valid until the next call for this
// walk. ESKER_NOT_FOUND: there are no more entries.
esker_status esker_iter_next(esker_iter *iter,
                             esker_slice *key,
                             esker_slice *value,
                             esker_error **error);

// Fills a buffer with as many of the next entries as fit. Each is the length of the key and that of the
// value (two numbers of four bytes, little-endian, not aligned), the key, the value.
//
// Sets `count` to the number of entries and `bytes` to their size. A count of 0 ends the walk.
// ESKER_BUFFER_TOO_SMALL: not even the next entry fits; `bytes` is its size, and it comes with the next
// call. Do not mix it with esker_iter_next.
//
// If reading fails, the entries before the error come first: the next call returns the error. The walk has
// ended then, unless the error is ESKER_MERGE: it concerns one entry, and the walk goes on behind it.
esker_status esker_iter_fill(esker_iter *iter,
                             esker_buffer buffer,
                             size_t *count,
                             size_t *bytes,
                             esker_error **error);

// Frees a walk. NULL is allowed.
void esker_iter_free(esker_iter *iter);

// Makes a cursor over a keyspace, at no key.
esker_status esker_cursor_new(const esker_keyspace *keyspace,
                              const esker_txn *txn,
                              esker_cursor **cursor,
                              esker_error **error);

// Moves to the first key that is `key` or follows it. ESKER_NOT_FOUND: there is none.
esker_status esker_cursor_seek(esker_cursor *cursor, esker_slice key, esker_error **error);

// Moves to the last key before `key`. ESKER_NOT_FOUND: there is none.
esker_status esker_cursor_seek_before(esker_cursor *cursor, esker_slice key, esker_error **error);

// Moves to the first key. ESKER_NOT_FOUND: there is none.
esker_status esker_cursor_first(esker_cursor *cursor, esker_error **error);

// Moves to the last key. ESKER_NOT_FOUND: there is none.
esker_status esker_cursor_last(esker_cursor *cursor, esker_error **error);

// Moves to the next key. ESKER_NOT_FOUND: there is none.
esker_status esker_cursor_next(esker_cursor *cursor, esker_error **error);

// Moves to the key before. ESKER_NOT_FOUND: there is none.
esker_status esker_cursor_prev(esker_cursor *cursor, esker_error **error);

// Sets `key` and `value`, which may be NULL, to the entry at the cursor. Both are valid until the cursor
// moves or is freed. ESKER_NOT_FOUND: the cursor is at no key.
esker_status esker_cursor_entry(const esker_cursor *cursor,
                                esker_slice *key,
                                esker_slice *value,
                                esker_error **error);

// Frees a cursor. NULL is allowed.
void esker_cursor_free(esker_cursor *cursor);

// Frees a handle. NULL is allowed.
void esker_keyspace_free(esker_keyspace *keyspace);

// Returns the number of a keyspace, which the change feed uses. It stays when the keyspace is renamed.
uint32_t esker_keyspace_id(const esker_keyspace *keyspace);

// Sets `name` to the present name.
esker_status esker_keyspace_name(const esker_keyspace *keyspace, esker_value *name, esker_error **error);

// Makes another handle of the keyspace whose writes without a transaction have this durability.
esker_status esker_keyspace_with_durability(const esker_keyspace *keyspace,
                                            uint32_t durability,
                                            esker_keyspace **other,
                                            esker_error **error);

// Sets the merge operator of a keyspace without one: "add-i64", "append", another built-in one, or one of
// esker_options_add_merge_operator. It stays for ever.
esker_status esker_keyspace_set_merge_operator(const esker_keyspace *keyspace,
                                               const char *operator_,
                                               esker_error **error);

// Sets the lifetime of entries that are put without one. 0: they do not expire.
esker_status esker_keyspace_set_default_ttl(const esker_keyspace *keyspace,
                                            uint64_t milliseconds,
                                            esker_error **error);

// Sets the size in bytes beyond which the oldest entries are removed. 0: unlimited.
esker_status esker_keyspace_set_bytes_max(const esker_keyspace *keyspace,
                                          uint64_t bytes,
                                          esker_error **error);

// Makes options with their defaults, which suit most programs.
esker_options *esker_options_new(void);

// Frees options. NULL is allowed.
void esker_options_free(esker_options *options);

// Memory in bytes for cached blocks, indexes, filters and memtables. Default 1 GiB.
void esker_options_set_memory(esker_options *options, uint64_t bytes);

// The durability of commits that name none: ESKER_DURABILITY_SYNC, unless this sets another.
esker_status esker_options_set_durability(esker_options *options,
                                          uint32_t durability,
                                          esker_error **error);

// The isolation of esker_transact and of transactions with ESKER_TXN_DEFAULT: true, the default, for
// serializable, false for snapshot isolation, which permits write skew.
void esker_options_set_serializable(esker_options *options, bool yes);

// Whether a missing database is created. Default true.
void esker_options_set_create_if_missing(esker_options *options, bool yes);

// Whether a database that exists is an error. Default false.
void esker_options_set_error_if_exists(esker_options *options, bool yes);

// Whether the database is opened to read it, beside other readers. Nothing is written. Default false.
void esker_options_set_read_only(esker_options *options, bool yes);

// Whether tables are compressed where it pays. Default true.
void esker_options_set_compression(esker_options *options, bool yes);

// Values of this many bytes and more are stored in blob files. 0: none are.
void esker_options_set_blobs_from(esker_options *options, uint64_t bytes);

// How long an opening waits for a database that another process has open. Default 0.
void esker_options_set_lock_timeout(esker_options *options, uint64_t milliseconds);

// Keeps a change feed: the commits of the last `seconds`, and at most `bytes` of them. 0 bytes: no feed.
void esker_options_set_feed(esker_options *options,
                            uint64_t bytes,
                            uint64_t seconds);

// Encrypts the database with the master keys of a file: see docs/encryption.md for its form.
esker_status esker_options_set_key_file(esker_options *options, const char *path, esker_error **error);

// Registers a merge operator under a name. Any thread may use its context until the database is closed.
esker_status esker_options_add_merge_operator(esker_options *options,
                                              const char *name,
                                              esker_merge_function function,
                                              void *context,
                                              esker_error **error);

// Reads a key, in `txn` or, if that is NULL, in the newest state. Free the value with esker_value_free.
//
// ESKER_NOT_FOUND: there is no such key, and `value->data` is NULL.
esker_status esker_get(const esker_keyspace *keyspace,
                       const esker_txn *txn,
                       esker_slice key,
                       esker_value *value,
                       esker_error **error);

// Reads a key into a buffer, and sets `len` to the length of its value.
//
// ESKER_NOT_FOUND: there is no such key. ESKER_BUFFER_TOO_SMALL: `len` is what the buffer needs.
esker_status esker_get_into(const esker_keyspace *keyspace,
                            const esker_txn *txn,
                            esker_slice key,
                            esker_buffer buffer,
                            size_t *len,
                            esker_error **error);

// Reads `count` keys of one state into `count` values. `data` is NULL for a missing key. Free each value.
esker_status esker_get_many(const esker_keyspace *keyspace,
                            const esker_txn *txn,
                            const esker_slice *keys,
                            size_t count,
                            esker_value *values,
                            esker_error **error);

// Returns ESKER_OK if a key exists, and else ESKER_NOT_FOUND.
esker_status esker_contains(const esker_keyspace *keyspace,
                            const esker_txn *txn,
                            esker_slice key,
                            esker_error **error);

// Sets `milliseconds` to the remaining lifetime of a key, UINT64_MAX if it does not expire.
esker_status esker_ttl(const esker_keyspace *keyspace,
                       const esker_txn *txn,
                       esker_slice key,
                       uint64_t *milliseconds,
                       esker_error **error);

// Sets `count` to the exact number of keys of a keyspace.
esker_status esker_len(const esker_keyspace *keyspace,
                       const esker_txn *txn,
                       uint64_t *count,
                       esker_error **error);

// Sets `bytes` to the approximate size on disk of a range.
esker_status esker_approximate_size(const esker_keyspace *keyspace,
                                    esker_range range,
                                    uint64_t *bytes,
                                    esker_error **error);

// Compacts the keys of a range, so that it has no garbage. A `data` that is NULL stands for no bound.
esker_status esker_compact_range(const esker_keyspace *keyspace, esker_range range, esker_error **error);

// Gives a value back. Its bytes must not be used afterwards. NULL and a value given back are allowed.
void esker_value_free(esker_value *value);

// Returns a status's name in words, such as "not found". It lives for ever.
const char *esker_status_name(int32_t status);

// Makes a tuple without fields.
esker_tuple *esker_tuple_new(void);

// Frees a tuple. NULL is allowed.
void esker_tuple_free(esker_tuple *tuple);

// Appends a field to a tuple. The kind of the field says which other member is used; the rest are ignored.
esker_status esker_tuple_add(esker_tuple *tuple,
                             esker_field field,
                             esker_error **error);

// Sets `key` to the encoded tuple. Free it with esker_value_free.
esker_status esker_tuple_pack(const esker_tuple *tuple, esker_value *key, esker_error **error);

// Decodes a key. ESKER_INVALID: it is no encoded tuple.
esker_status esker_tuple_unpack(esker_slice key, esker_tuple **tuple, esker_error **error);

// Returns the number of fields.
size_t esker_tuple_size(const esker_tuple *tuple);

// Sets `field` to a field of a tuple, the first has the number 0. What it points to is valid until the next
// call for this tuple. ESKER_NOT_FOUND: there are fewer fields.
esker_status esker_tuple_get(esker_tuple *tuple,
                             size_t at,
                             esker_field *field,
                             esker_error **error);

// Begins a transaction of a kind (ESKER_TXN_...).
esker_status esker_begin(const esker_db *db, uint32_t kind, esker_txn **txn, esker_error **error);

// Commits a transaction with a durability (ESKER_DURABILITY_...), and sets `seqno` to the number of the
// commit; `seqno` may be NULL. Free the transaction afterwards.
//
// ESKER_CONFLICT: nothing was written; free it, and run all of it again (esker_transact does). After other
// errors the transaction still has its writes: after ESKER_NO_SPACE, commit again once there is space.
esker_status esker_commit(esker_txn *txn,
                          uint32_t durability,
                          uint64_t *seqno,
                          esker_error **error);

// Frees a transaction; without a commit its writes have no effect. NULL is allowed.
void esker_txn_free(esker_txn *txn);

// Returns the number of the newest commit that the transaction reads, or 0.
uint64_t esker_txn_seqno(const esker_txn *txn);

// Runs a function in a transaction (not a read-only or write-only one) and commits it. After a conflict or
// deadlock the function is called again with a new transaction, until it commits. So it must have no effect
// outside of the transaction, and returns the status of a call that failed.
//
// Returns ESKER_OK, the status of the function, or that of the commit. `error` is set only for the latter.
int32_t esker_transact(const esker_db *db,
                       uint32_t kind,
                       esker_transact_function function,
                       void *context,
                       esker_error **error);

// Marks a state of a transaction to which esker_rollback_to can return. Sets `savepoint` to its number.
esker_status esker_savepoint(esker_txn *txn, uint64_t *savepoint, esker_error **error);

// Undoes all writes since a savepoint. Later savepoints end; this one stays.
esker_status esker_rollback_to(esker_txn *txn, uint64_t savepoint, esker_error **error);

// Locks a key until the transaction ends: other transactions that lock it wait. `shared` locks exclude only
// exclusive ones. Errors: ESKER_DEADLOCK, ESKER_LOCK_TIMEOUT, ESKER_CONFLICT.
esker_status esker_lock(const esker_keyspace *keyspace,
                        esker_txn *txn,
                        esker_slice key,
                        bool shared,
                        esker_error **error);

// Sets a key to a value.
esker_status esker_put(const esker_keyspace *keyspace,
                       esker_txn *txn,
                       esker_slice key,
                       esker_slice value,
                       esker_error **error);

// Sets a key to a value that expires after some time, from now on.
esker_status esker_put_with_ttl(const esker_keyspace *keyspace,
                                esker_txn *txn,
                                esker_slice key,
                                esker_slice value,
                                uint64_t milliseconds,
                                esker_error **error);

// Merges an operand into a key by the keyspace's merge operator, without reading the key.
esker_status esker_merge(const esker_keyspace *keyspace,
                         esker_txn *txn,
                         esker_slice key,
                         esker_slice operand,
                         esker_error **error);

// Removes a key, whether it exists or not. esker_remove returns what was there.
esker_status esker_delete(const esker_keyspace *keyspace,
                          esker_txn *txn,
                          esker_slice key,
                          esker_error **error);

// Removes all keys of a range, at a cost that does not depend on their number.
esker_status esker_delete_range(const esker_keyspace *keyspace,
                                esker_txn *txn,
                                esker_range range,
                                esker_error **error);

// Removes all keys that begin with a prefix.
esker_status esker_delete_prefix(const esker_keyspace *keyspace,
                                 esker_txn *txn,
                                 esker_slice prefix,
                                 esker_error **error);

// Removes a key and sets `old`, which may be NULL, to the value that it had. ESKER_NOT_FOUND: it had none.
esker_status esker_remove(const esker_keyspace *keyspace,
                          esker_txn *txn,
                          esker_slice key,
                          esker_value *old,
                          esker_error **error);

// Replaces a value if it is the expected one. The new value expires when the old one would. Sets `old`,
// which may be NULL, to the value that the key had. ESKER_NOT_SWAPPED: it has another, which stays.
esker_status esker_compare_and_swap(const esker_keyspace *keyspace,
                                    esker_txn *txn,
                                    esker_slice key,
                                    esker_swap swap,
                                    esker_value *old,
                                    esker_error **error);

// Adds to a number of eight bytes (little-endian, two's complement; 0 if the key is missing), and sets
// `old`, which may be NULL, to the number before. The sum wraps.
esker_status esker_fetch_add(const esker_keyspace *keyspace,
                             esker_txn *txn,
                             esker_slice key,
                             int64_t add,
                             int64_t *old,
                             esker_error **error);

// Lets a key expire after some time, from now on. UINT64_MAX: it does not expire. ESKER_NOT_FOUND: there is
// no such key.
esker_status esker_expire(const esker_keyspace *keyspace,
                          esker_txn *txn,
                          esker_slice key,
                          uint64_t milliseconds,
                          esker_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ESKER_H */

/* Bytes of the caller as a slice. */
static inline esker_slice esker_bytes(const void *data, size_t len) {
    esker_slice slice;
    slice.data = (const uint8_t *)data;
    slice.len = len;
    return slice;
}

/* A text of the caller as a slice, without its zero byte. */
static inline esker_slice esker_text(const char *text) {
    return esker_bytes(text, strlen(text));
}

/* The keys from `start` on, below `end`. */
static inline esker_range esker_range_of(esker_slice start, esker_slice end) {
    esker_range range;
    range.start = start;
    range.end = end;
    return range;
}

/* No bytes: no bound of a range, no value. */
static inline esker_slice esker_none(void) {
    return esker_bytes(NULL, 0);
}
