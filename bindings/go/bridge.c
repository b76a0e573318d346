#include "bridge.h"

#include <stdlib.h>

static esker_slice slice(const uint8_t *data, size_t len) {
    return esker_bytes(data, len);
}

/* Bytes that grow. A failed allocation stays noted in `failed`. */
typedef struct {
    uint8_t *data;
    size_t len;
    size_t capacity;
    int failed;
} growing;

static void append(growing *to, const void *bytes, size_t len) {
    if (to->failed) return;
    if (len > to->capacity - to->len) {
        size_t capacity = to->capacity < 1024 ? 1024 : to->capacity;
        while (capacity - to->len < len) {
            if (capacity > SIZE_MAX / 2) {
                to->failed = 1;
                return;
            }
            capacity *= 2;
        }
        uint8_t *larger = realloc(to->data, capacity);
        if (larger == NULL) {
            to->failed = 1;
            return;
        }
        to->data = larger;
        to->capacity = capacity;
    }
    if (len > 0) memcpy(to->data + to->len, bytes, len);
    to->len += len;
}

/* Hands grown bytes to the caller. */
static int hand_over(growing *from, int status, bridge_result *result) {
    if (status == ESKER_OK && from->failed) status = ESKER_OTHER;
    if (status != ESKER_OK) {
        free(from->data);
        return status;
    }
    result->data = from->data;
    result->len = from->len;
    return status;
}

void bridge_free(uint8_t *data) {
    free(data);
}

int bridge_open(const char *path, const char *key_file, const bridge_options *options, esker_db **db,
                bridge_result *result) {
    esker_options *made = esker_options_new();
    int status = ESKER_OK;
    if (options->memory != 0) esker_options_set_memory(made, options->memory);
    esker_options_set_serializable(made, !(options->flags & BRIDGE_SNAPSHOT_ISOLATION));
    esker_options_set_create_if_missing(made, !(options->flags & BRIDGE_MUST_EXIST));
    esker_options_set_error_if_exists(made, (options->flags & BRIDGE_MUST_NOT_EXIST) != 0);
    esker_options_set_read_only(made, (options->flags & BRIDGE_READ_ONLY) != 0);
    esker_options_set_compression(made, !(options->flags & BRIDGE_NO_COMPRESSION));
    if (options->flags & BRIDGE_BLOBS) esker_options_set_blobs_from(made, options->blobs_from);
    esker_options_set_lock_timeout(made, options->lock_timeout_ms);
    if (options->feed_bytes != 0) esker_options_set_feed(made, options->feed_bytes, options->feed_seconds);
    if (options->durability != ESKER_DURABILITY_DEFAULT)
        status = esker_options_set_durability(made, options->durability, &result->error);
    if (status == ESKER_OK && key_file != NULL)
        status = esker_options_set_key_file(made, key_file, &result->error);
    if (status == ESKER_OK)
        status = options->flags & BRIDGE_IN_MEMORY ? esker_open_in_memory(made, db, &result->error)
                                                   : esker_open(path, made, db, &result->error);
    esker_options_free(made);
    return status;
}

static void note_name(void *context, const char *name) {
    append(context, name, strlen(name) + 1);
}

int bridge_names(const esker_db *db, bridge_result *result) {
    growing names = {0};
    return hand_over(&names, esker_keyspace_names(db, note_name, &names, &result->error), result);
}

static void note_figure(void *context, const char *name, double value) {
    append(context, &value, sizeof value);
    append(context, name, strlen(name) + 1);
}

int bridge_stats(const esker_db *db, bridge_result *result) {
    growing figures = {0};
    return hand_over(&figures, esker_stats(db, note_figure, &figures, &result->error), result);
}

/* Copies a value into the caller's buffer if it fits, and keeps it in the result if not. */
static void copy_or_keep(bridge_result *result, uint8_t *buffer, size_t capacity) {
    result->len = result->value.len;
    if (result->value.len <= capacity) bridge_take(result, buffer);
}

void bridge_take(bridge_result *result, uint8_t *buffer) {
    if (result->value.len > 0) memcpy(buffer, result->value.data, result->value.len);
    esker_value_free(&result->value);
}

int bridge_get(const esker_keyspace *keyspace, const esker_txn *txn, const uint8_t *key, size_t key_len,
               uint8_t *buffer, size_t capacity, bridge_result *result) {
    int status = esker_get(keyspace, txn, slice(key, key_len), &result->value, &result->error);
    if (status == ESKER_OK) copy_or_keep(result, buffer, capacity);
    return status;
}

int bridge_get_many(const esker_keyspace *keyspace, const esker_txn *txn, const uint8_t *keys,
                    const size_t *lens, size_t count, bridge_result *result) {
    growing values = {0};
    esker_slice *slices = calloc(count, sizeof *slices);
    esker_value *found = calloc(count, sizeof *found);
    if (slices == NULL || found == NULL) {
        free(slices);
        free(found);
        return ESKER_OTHER;
    }
    for (size_t at = 0; at < count; at++) {
        slices[at] = slice(keys, lens[at]);
        keys += lens[at];
    }
    int status = esker_get_many(keyspace, txn, slices, count, found, &result->error);
    for (size_t at = 0; status == ESKER_OK && at < count; at++) {
        uint64_t len = found[at].data == NULL ? UINT64_MAX : found[at].len;
        append(&values, &len, sizeof len);
        if (found[at].data != NULL) append(&values, found[at].data, found[at].len);
        esker_value_free(&found[at]);
    }
    free(slices);
    free(found);
    return hand_over(&values, status, result);
}

int bridge_contains(const esker_keyspace *keyspace, const esker_txn *txn, const uint8_t *key, size_t key_len,
                    bridge_result *result) {
    return esker_contains(keyspace, txn, slice(key, key_len), &result->error);
}

int bridge_ttl(const esker_keyspace *keyspace, const esker_txn *txn, const uint8_t *key, size_t key_len,
               bridge_result *result) {
    return esker_ttl(keyspace, txn, slice(key, key_len), &result->number, &result->error);
}

int bridge_size(const esker_keyspace *keyspace, const uint8_t *start, size_t start_len, const uint8_t *end,
                size_t end_len, bridge_result *result) {
    esker_range range = esker_range_of(slice(start, start_len), slice(end, end_len));
    return esker_approximate_size(keyspace, range, &result->number, &result->error);
}

int bridge_put(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
               const uint8_t *value, size_t value_len, bridge_result *result) {
    return esker_put(keyspace, txn, slice(key, key_len), slice(value, value_len), &result->error);
}

int bridge_put_ttl(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                   const uint8_t *value, size_t value_len, uint64_t milliseconds, bridge_result *result) {
    return esker_put_with_ttl(keyspace, txn, slice(key, key_len), slice(value, value_len), milliseconds,
                              &result->error);
}

int bridge_merge(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                 const uint8_t *operand, size_t operand_len, bridge_result *result) {
    return esker_merge(keyspace, txn, slice(key, key_len), slice(operand, operand_len), &result->error);
}

int bridge_delete(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                  bridge_result *result) {
    return esker_delete(keyspace, txn, slice(key, key_len), &result->error);
}

int bridge_remove(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                  uint8_t *buffer, size_t capacity, bridge_result *result) {
    int status = esker_remove(keyspace, txn, slice(key, key_len), &result->value, &result->error);
    if (status == ESKER_OK) copy_or_keep(result, buffer, capacity);
    return status;
}

int bridge_delete_range(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *start,
                        size_t start_len, const uint8_t *end, size_t end_len, bridge_result *result) {
    esker_range range = esker_range_of(slice(start, start_len), slice(end, end_len));
    return esker_delete_range(keyspace, txn, range, &result->error);
}

int bridge_delete_prefix(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *prefix,
                         size_t prefix_len, bridge_result *result) {
    return esker_delete_prefix(keyspace, txn, slice(prefix, prefix_len), &result->error);
}

int bridge_swap(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                const uint8_t *expected, size_t expected_len, const uint8_t *new_value, size_t new_len,
                bridge_result *result) {
    esker_swap swap = {slice(expected, expected_len), slice(new_value, new_len)};
    return esker_compare_and_swap(keyspace, txn, slice(key, key_len), swap, NULL, &result->error);
}

int bridge_add(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len, int64_t by,
               bridge_result *result) {
    int64_t old = 0;
    int status = esker_fetch_add(keyspace, txn, slice(key, key_len), by, &old, &result->error);
    result->number = (uint64_t)old;
    return status;
}

int bridge_expire(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                  uint64_t milliseconds, bridge_result *result) {
    return esker_expire(keyspace, txn, slice(key, key_len), milliseconds, &result->error);
}

int bridge_lock(const esker_keyspace *keyspace, esker_txn *txn, const uint8_t *key, size_t key_len,
                int shared, bridge_result *result) {
    return esker_lock(keyspace, txn, slice(key, key_len), shared != 0, &result->error);
}

int bridge_walk(const esker_keyspace *keyspace, const esker_txn *txn, const uint8_t *start, size_t start_len,
                const uint8_t *end, size_t end_len, const bridge_walk_options *options, uint8_t *buffer,
                size_t capacity, esker_iter **iter, bridge_result *result) {
    esker_range range = esker_range_of(slice(start, start_len), slice(end, end_len));
    int status = options->is_prefix
        ? esker_iter_prefix(keyspace, txn, range.start, options->flags, iter, &result->error)
        : esker_iter_new(keyspace, txn, range, options->flags, iter, &result->error);
    if (status != ESKER_OK) return status;
    esker_iter_set_limit(*iter, options->limit);
    status = bridge_fill(*iter, buffer, capacity, result);
    if (result->done || (status != ESKER_OK && status != ESKER_BUFFER_TOO_SMALL)) {
        esker_iter_free(*iter);
        *iter = NULL;
    }
    return status;
}

int bridge_fill(esker_iter *iter, uint8_t *buffer, size_t capacity, bridge_result *result) {
    esker_buffer room = {buffer, capacity};
    result->done = 0;
    int status = esker_iter_fill(iter, room, &result->count, &result->len, &result->error);
    if (status != ESKER_OK) return status;
    if (result->count == 0) {
        result->done = 1;
        return status;
    }
    /* The rest of the buffer tells whether the walk has ended: then no further call is needed. An entry that
     * does not fit is kept by the walk. An error is returned beside the entries before it. */
    size_t more = 0, bytes = 0;
    room.data += result->len;
    room.len -= result->len;
    int rest = esker_iter_fill(iter, room, &more, &bytes, &result->error);
    if (rest == ESKER_OK) {
        result->done = more == 0;
        result->count += more;
        result->len += bytes;
    }
    return rest == ESKER_BUFFER_TOO_SMALL ? ESKER_OK : rest;
}

static int moved(esker_cursor *cursor, int move, esker_slice key, esker_error **error) {
    switch (move) {
        case BRIDGE_FIRST: return esker_cursor_first(cursor, error);
        case BRIDGE_LAST: return esker_cursor_last(cursor, error);
        case BRIDGE_NEXT: return esker_cursor_next(cursor, error);
        case BRIDGE_PREV: return esker_cursor_prev(cursor, error);
        case BRIDGE_SEEK: return esker_cursor_seek(cursor, key, error);
        case BRIDGE_SEEK_BEFORE: return esker_cursor_seek_before(cursor, key, error);
        default: return ESKER_OK;
    }
}

int bridge_move(esker_cursor *cursor, int move, const uint8_t *key, size_t key_len, uint8_t *buffer,
                size_t capacity, bridge_result *result) {
    esker_slice found, value;
    int status = moved(cursor, move, slice(key, key_len), &result->error);
    if (status != ESKER_OK) return status;
    status = esker_cursor_entry(cursor, &found, &value, &result->error);
    if (status != ESKER_OK) return status;
    result->count = found.len;
    result->len = found.len + value.len;
    if (result->len > capacity) return ESKER_BUFFER_TOO_SMALL;
    if (found.len > 0) memcpy(buffer, found.data, found.len);
    if (value.len > 0) memcpy(buffer + found.len, value.data, value.len);
    return status;
}

static void note_change(growing *to, const esker_change *change) {
    uint64_t key_len = change->key.len;
    uint64_t value_len = change->value.data == NULL ? UINT64_MAX : change->value.len;
    append(to, &change->kind, sizeof change->kind);
    append(to, &change->keyspace, sizeof change->keyspace);
    append(to, &change->expires_at, sizeof change->expires_at);
    append(to, &change->merged_at, sizeof change->merged_at);
    append(to, &change->lifetime, sizeof change->lifetime);
    append(to, &key_len, sizeof key_len);
    append(to, &value_len, sizeof value_len);
    append(to, change->key.data, change->key.len);
    if (change->value.data != NULL) append(to, change->value.data, change->value.len);
}

int bridge_feed(esker_feed *feed, uint64_t milliseconds, bridge_result *result) {
    growing changes = {0};
    esker_change change;
    int status = esker_feed_next(feed, milliseconds, &result->number, &result->error);
    if (status != ESKER_OK) return status;
    while ((status = esker_feed_change(feed, &change, &result->error)) == ESKER_OK) {
        note_change(&changes, &change);
        result->count++;
    }
    return hand_over(&changes, status == ESKER_NOT_FOUND ? ESKER_OK : status, result);
}
