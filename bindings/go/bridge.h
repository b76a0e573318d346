/* What the Go package calls: functions of esker.h with their arguments taken apart, so that Go passes plain
 * pointers, and with several calls in one, because each call from Go to C costs some 30 ns.
 *
 * None calls back into Go, and none keeps a pointer of the caller. */

#ifndef ESKER_GO_BRIDGE_H
#define ESKER_GO_BRIDGE_H

#include <esker.h>

/* What a call leaves besides its status. `value` is set if bytes did not fit into the caller's buffer. `data`
 * is from malloc, for bridge_free. */
typedef struct {
    esker_error *error;
    esker_value value;
    uint8_t *data;
    size_t len;
    size_t count;
    uint64_t number;
    int done;
} bridge_result;

typedef struct {
    const uint8_t *data;
    size_t len;
} bridge_bytes;

/* Options of esker_open, as plain numbers. */
typedef struct {
    uint64_t memory;
    uint64_t blobs_from;
    uint64_t lock_timeout_ms;
    uint64_t feed_bytes;
    uint64_t feed_seconds;
    uint32_t durability;
    uint32_t flags;
} bridge_options;

enum {
    BRIDGE_SNAPSHOT_ISOLATION = 1,
    BRIDGE_MUST_EXIST = 2,
    BRIDGE_MUST_NOT_EXIST = 4,
    BRIDGE_READ_ONLY = 8,
    BRIDGE_NO_COMPRESSION = 16,
    BRIDGE_BLOBS = 32,
    BRIDGE_IN_MEMORY = 64
};

int bridge_open(const char *path, const char *key_file, const bridge_options *options, esker_db **db,
                bridge_result *result);
int bridge_names(const esker_db *db, bridge_result *result);
int bridge_stats(const esker_db *db, bridge_result *result);

int bridge_get(const esker_keyspace *keyspace, const esker_txn *txn, const uint8_t *key, size_t key_len,
               uint8_t *buffer, size_t capacity, bridge_result *result);
void bridge_take(bridge_result *result, uint8_t *buffer);
int bridge_get_many(const esker_keyspace *keyspace, const esker_txn *txn, const uint8_t *keys,
                    const size_t *lens, size_t count, bridge_result *result);
int bridge_contains(const esker_keyspace *keyspace, const esker_txn *txn, const uint8_t *key, size_t key_len,
                    bridge_result *result);
int bridge_ttl(const esker_keyspace *keyspace, const esker_txn *txn, const uint8_t *key, size_t key_len,
               bridge_result *result);
int bridge_size(const esker_keyspace *keyspace, const uint8_t *start, size_t start_len, const uint8_t *end,
                size_t end_len, bridge_result *result);

int bridge_put(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
               const uint8_t *value, size_t value_len, bridge_result *result);
int bridge_put_ttl(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                   const uint8_t *value, size_t value_len, uint64_t milliseconds, bridge_result *result);
int bridge_merge(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                 const uint8_t *operand, size_t operand_len, bridge_result *result);
int bridge_delete(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                  bridge_result *result);
int bridge_remove(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                  uint8_t *buffer, size_t capacity, bridge_result *result);
int bridge_delete_range(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *start,
                        size_t start_len, const uint8_t *end, size_t end_len, bridge_result *result);
int bridge_delete_prefix(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *prefix,
                         size_t prefix_len, bridge_result *result);
int bridge_swap(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                const uint8_t *expected, size_t expected_len, const uint8_t *new_value, size_t new_len,
                bridge_result *result);
int bridge_add(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len, int64_t by,
               bridge_result *result);
int bridge_expire(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                  uint64_t milliseconds, bridge_result *result);
int bridge_lock(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                int shared, bridge_result *result);

/* How a walk goes. `is_prefix` not 0: its start is a prefix, and its end is ignored. */
typedef struct {
    uint64_t limit;
    uint32_t flags;
    int is_prefix;
} bridge_walk_options;

/* Begins a walk and fills a buffer. `*iter` is NULL if the walk has ended, which sets result->done. */
int bridge_walk(const esker_keyspace *keyspace, const esker_txn *txn, const uint8_t *start, size_t start_len,
                const uint8_t *end, size_t end_len, const bridge_walk_options *options, uint8_t *buffer,
                size_t capacity, esker_iter **iter, bridge_result *result);
/* Fills a buffer with the next entries. result->done: there are no more. If reading fails, result->count is
 * the number of entries before the error. */
int bridge_fill(esker_iter *iter, uint8_t *buffer, size_t capacity, bridge_result *result);

enum { BRIDGE_FIRST, BRIDGE_LAST, BRIDGE_NEXT, BRIDGE_PREV, BRIDGE_SEEK, BRIDGE_SEEK_BEFORE, BRIDGE_STAY };

/* Moves a cursor and copies the entry: the key, then the value. result->count is the length of the key, and
 * result->len that of both. ESKER_BUFFER_TOO_SMALL: nothing was copied; call again with BRIDGE_STAY. */
int bridge_move(esker_cursor *cursor, int move, const uint8_t *key, size_t key_len, uint8_t *buffer,
                size_t capacity, bridge_result *result);

/* Waits for the next commit of a feed, and leaves its changes in result->data. Each has the kind and the
 * keyspace (4 bytes), the expiry, the time of a merge and its lifetime (8), the lengths of key and value (8,
 * UINT64_MAX: none), key and value. */
int bridge_feed(esker_feed *feed, uint64_t milliseconds, bridge_result *result);

void bridge_free(uint8_t *data);

#endif
