/* LevelDB's C API, on that of Esker: see leveldb/c.h. All entries are in the keyspace "default". */
#define _XOPEN_SOURCE 700

#include "leveldb/c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "esker.h"

struct leveldb_t {
    esker_db *db;
    esker_keyspace *entries;
};

struct leveldb_cache_t {
    size_t capacity;
};

struct leveldb_options_t {
    const leveldb_comparator_t *comparator;
    uint8_t create_if_missing, error_if_exists;
    size_t write_buffer_size;
    size_t cache;
    int compression;
};

struct leveldb_comparator_t {
    void *state;
    void (*destructor)(void *);
    const char *(*name)(void *);
};

struct leveldb_filterpolicy_t {
    void *state;
    void (*destructor)(void *);
};

struct leveldb_readoptions_t {
    const leveldb_snapshot_t *snapshot;
};

struct leveldb_writeoptions_t {
    uint8_t sync;
};

struct leveldb_env_t {
    char unused;
};

struct leveldb_iterator_t {
    esker_cursor *cursor;
    int is_valid;
    /* Why the last move failed, or NULL. */
    char *failure;
};

/* Records one after the other: the lengths of key and value, SIZE_MAX for a removal, then the bytes. */
struct leveldb_writebatch_t {
    char *data;
    size_t len, capacity;
};

/* Memory that a program cannot do without: LevelDB's functions have no way to say that it is missing. */
static void *memory(void *block) {
    if (block == NULL) {
        fputs("leveldb: out of memory\n", stderr);
        abort();
    }
    return block;
}

static void *allocate(size_t size) {
    return memory(calloc(1, size));
}

static char *copy_of(const void *data, size_t len) {
    char *copy = memory(malloc(len + 1));
    if (len > 0) memcpy(copy, data, len);
    copy[len] = 0;
    return copy;
}

static void fail(char **errptr, const char *kind, const char *text) {
    size_t size = strlen(kind) + strlen(text) + 3;
    char *message = memory(malloc(size));
    snprintf(message, size, "%s: %s", kind, text);
    free(*errptr);
    *errptr = message;
}

/* Reports an error in LevelDB's words, and frees it. Returns whether there is none. */
static int is_well(esker_status status, esker_error *error, char **errptr) {
    const char *kind = "IO error";
    if (error == NULL) return 1;
    if (status == ESKER_CORRUPT || status == ESKER_UNSUPPORTED_VERSION) kind = "Corruption";
    if (status == ESKER_INVALID || status == ESKER_TOO_LONG || status == ESKER_NO_DATABASE ||
        status == ESKER_EXISTS) {
        kind = "Invalid argument";
    }
    fail(errptr, kind, esker_error_text(error));
    esker_error_free(error);
    return 0;
}

static esker_txn *view_of(const leveldb_readoptions_t *options) {
    return (esker_txn *)(void *)(options == NULL ? NULL : options->snapshot);
}

static uint32_t durability_of(const leveldb_writeoptions_t *options) {
    return options != NULL && options->sync ? ESKER_DURABILITY_SYNC : ESKER_DURABILITY_BUFFERED;
}

leveldb_t *leveldb_open(const leveldb_options_t *options, const char *name, char **errptr) {
    esker_options *with;
    esker_error *error = NULL;
    esker_status status;
    leveldb_t *db;
    if (options->comparator != NULL &&
        strcmp(options->comparator->name(options->comparator->state), "leveldb.BytewiseComparator") != 0) {
        fail(errptr, "Invalid argument", "Esker has keys in the order of their bytes, and no other comparator");
        return NULL;
    }
    db = allocate(sizeof *db);
    with = esker_options_new();
    esker_options_set_create_if_missing(with, options->create_if_missing);
    esker_options_set_error_if_exists(with, options->error_if_exists);
    esker_options_set_compression(with, options->compression != leveldb_no_compression);
    /* Two memtables, the cached blocks, and room for indexes. */
    esker_options_set_memory(with, 2 * (uint64_t)options->write_buffer_size + options->cache + (16 << 20));
    status = esker_options_set_durability(with, ESKER_DURABILITY_BUFFERED, &error);
    if (status == ESKER_OK) status = esker_open(name, with, &db->db, &error);
    if (status == ESKER_OK) status = esker_keyspace_open(db->db, "default", &db->entries, &error);
    esker_options_free(with);
    if (is_well(status, error, errptr)) return db;
    leveldb_close(db);
    return NULL;
}

void leveldb_close(leveldb_t *db) {
    if (db == NULL) return;
    esker_keyspace_free(db->entries);
    esker_close(db->db, NULL);
    free(db);
}

/* Runs a commit of some writes. */
static void commit(leveldb_t *db, const leveldb_writeoptions_t *options, const leveldb_writebatch_t *batch,
                   char **errptr);

void leveldb_put(leveldb_t *db, const leveldb_writeoptions_t *options, const char *key, size_t keylen, const char *val,
                 size_t vallen, char **errptr) {
    leveldb_writebatch_t batch = {NULL, 0, 0};
    if (durability_of(options) == ESKER_DURABILITY_BUFFERED) {
        esker_error *error = NULL;
        esker_status status =
            esker_put(db->entries, NULL, esker_bytes(key, keylen), esker_bytes(val, vallen), &error);
        is_well(status, error, errptr);
        return;
    }
    leveldb_writebatch_put(&batch, key, keylen, val, vallen);
    commit(db, options, &batch, errptr);
    free(batch.data);
}

void leveldb_delete(leveldb_t *db, const leveldb_writeoptions_t *options, const char *key, size_t keylen,
                    char **errptr) {
    leveldb_writebatch_t batch = {NULL, 0, 0};
    leveldb_writebatch_delete(&batch, key, keylen);
    commit(db, options, &batch, errptr);
    free(batch.data);
}

void leveldb_write(leveldb_t *db, const leveldb_writeoptions_t *options, leveldb_writebatch_t *batch, char **errptr) {
    commit(db, options, batch, errptr);
}

/* A transaction that is filled, and the first failure. */
struct filling {
    esker_keyspace *entries;
    esker_txn *txn;
    esker_status status;
    esker_error *error;
};

static void fill_put(void *context, const char *key, size_t keylen, const char *val, size_t vallen) {
    struct filling *to = context;
    if (to->status != ESKER_OK) return;
    to->status =
        esker_put(to->entries, to->txn, esker_bytes(key, keylen), esker_bytes(val, vallen), &to->error);
}

static void fill_delete(void *context, const char *key, size_t keylen) {
    struct filling *to = context;
    if (to->status != ESKER_OK) return;
    to->status = esker_delete(to->entries, to->txn, esker_bytes(key, keylen), &to->error);
}

static void commit(leveldb_t *db, const leveldb_writeoptions_t *options, const leveldb_writebatch_t *batch,
                   char **errptr) {
    struct filling to = {db->entries, NULL, ESKER_OK, NULL};
    to.status = esker_begin(db->db, ESKER_TXN_WRITE_ONLY, &to.txn, &to.error);
    leveldb_writebatch_iterate(batch, &to, fill_put, fill_delete);
    if (to.status == ESKER_OK) to.status = esker_commit(to.txn, durability_of(options), NULL, &to.error);
    is_well(to.status, to.error, errptr);
    esker_txn_free(to.txn);
}

char *leveldb_get(leveldb_t *db, const leveldb_readoptions_t *options, const char *key, size_t keylen, size_t *vallen,
                  char **errptr) {
    esker_value value;
    esker_error *error = NULL;
    char *copy = NULL;
    esker_status status = esker_get(db->entries, view_of(options), esker_bytes(key, keylen), &value, &error);
    *vallen = 0;
    if (is_well(status, error, errptr) && status == ESKER_OK) {
        copy = copy_of(value.data, value.len);
        *vallen = value.len;
        esker_value_free(&value);
    }
    return copy;
}

leveldb_iterator_t *leveldb_create_iterator(leveldb_t *db, const leveldb_readoptions_t *options) {
    leveldb_iterator_t *iter = allocate(sizeof *iter);
    esker_error *error = NULL;
    esker_status status = esker_cursor_new(db->entries, view_of(options), &iter->cursor, &error);
    is_well(status, error, &iter->failure);
    return iter;
}

const leveldb_snapshot_t *leveldb_create_snapshot(leveldb_t *db) {
    esker_txn *txn = NULL;
    esker_begin(db->db, ESKER_TXN_READ_ONLY, &txn, NULL);
    return memory(txn);
}

void leveldb_release_snapshot(leveldb_t *db, const leveldb_snapshot_t *snapshot) {
    (void)db;
    esker_txn_free((esker_txn *)(void *)snapshot);
}

static void append_figure(void *context, const char *name, double value) {
    leveldb_writebatch_t *text = context;
    char line[200];
    size_t len = (size_t)snprintf(line, sizeof line, "%s %.17g\n", name, value);
    if (len >= sizeof line) len = sizeof line - 1;
    if (text->len + len + 1 > text->capacity) {
        text->capacity = 2 * text->capacity + sizeof line;
        text->data = memory(realloc(text->data, text->capacity));
    }
    memcpy(text->data + text->len, line, len + 1);
    text->len += len;
}

char *leveldb_property_value(leveldb_t *db, const char *propname) {
    leveldb_writebatch_t text = {NULL, 0, 0};
    if (strcmp(propname, "leveldb.stats") != 0) return NULL;
    esker_stats(db->db, append_figure, &text, NULL);
    return text.data;
}

void leveldb_approximate_sizes(leveldb_t *db, int num_ranges, const char *const *range_start_key,
                               const size_t *range_start_key_len, const char *const *range_limit_key,
                               const size_t *range_limit_key_len, uint64_t *sizes) {
    int i;
    for (i = 0; i < num_ranges; ++i) {
        esker_slice start = esker_bytes(range_start_key[i], range_start_key_len[i]);
        esker_slice limit = esker_bytes(range_limit_key[i], range_limit_key_len[i]);
        sizes[i] = 0;
        esker_approximate_size(db->entries, esker_range_of(start, limit), &sizes[i], NULL);
    }
}

void leveldb_compact_range(leveldb_t *db, const char *start_key, size_t start_key_len, const char *limit_key,
                           size_t limit_key_len) {
    esker_slice start = esker_bytes(start_key, start_key_len), limit = esker_bytes(limit_key, limit_key_len);
    esker_compact_range(db->entries, esker_range_of(start, limit), NULL);
}

/* Whether the directory has a database that no process has open. Opening it tests this, changes nothing. */
static int is_free(const char *name, char **errptr) {
    esker_options *with = esker_options_new();
    esker_db *db = NULL;
    esker_error *error = NULL;
    esker_status status;
    esker_options_set_create_if_missing(with, false);
    status = esker_open(name, with, &db, &error);
    esker_options_free(with);
    if (status == ESKER_OK) esker_close(db, NULL);
    if (status != ESKER_LOCKED && status != ESKER_NO_DATABASE && status != ESKER_INVALID) {
        esker_error_free(error);
        return 1;
    }
    is_well(status, error, errptr);
    return 0;
}

void leveldb_destroy_db(const leveldb_options_t *options, const char *name, char **errptr) {
    esker_error *error = NULL;
    esker_status status = esker_destroy(name, &error);
    (void)options;
    /* As in LevelDB, a database that is not there is destroyed already. */
    if (status == ESKER_NO_DATABASE) {
        esker_error_free(error);
    } else {
        is_well(status, error, errptr);
    }
}

void leveldb_repair_db(const leveldb_options_t *options, const char *name, char **errptr) {
    esker_error *error = NULL;
    esker_status status;
    size_t size = strlen(name) + 10;
    char *damaged;
    (void)options;
    if (!is_free(name, errptr)) return;
    damaged = allocate(size);
    snprintf(damaged, size, "%s.damaged", name);
    if (access(damaged, F_OK) == 0 || rename(name, damaged) != 0) {
        fail(errptr, "IO error", "the directory cannot be renamed to one with .damaged behind its name");
    } else {
        status = esker_repair(damaged, name, &error);
        if (!is_well(status, error, errptr)) {
            /* Nothing was saved: the damaged database is where it was. */
            esker_destroy(name, NULL);
            rmdir(name);
            if (rename(damaged, name) != 0) fail(errptr, "IO error", damaged);
        }
    }
    free(damaged);
}

void leveldb_iter_destroy(leveldb_iterator_t *iter) {
    if (iter == NULL) return;
    esker_cursor_free(iter->cursor);
    free(iter->failure);
    free(iter);
}

uint8_t leveldb_iter_valid(const leveldb_iterator_t *iter) {
    return (uint8_t)iter->is_valid;
}

/* Notes how a move of the cursor ended. */
static void moved(leveldb_iterator_t *iter, esker_status status, esker_error *error) {
    iter->is_valid = is_well(status, error, &iter->failure) && status == ESKER_OK;
}

void leveldb_iter_seek_to_first(leveldb_iterator_t *iter) {
    esker_error *error = NULL;
    esker_status status = esker_cursor_first(iter->cursor, &error);
    moved(iter, status, error);
}

void leveldb_iter_seek_to_last(leveldb_iterator_t *iter) {
    esker_error *error = NULL;
    esker_status status = esker_cursor_last(iter->cursor, &error);
    moved(iter, status, error);
}

void leveldb_iter_seek(leveldb_iterator_t *iter, const char *k, size_t klen) {
    esker_error *error = NULL;
    esker_status status = esker_cursor_seek(iter->cursor, esker_bytes(k, klen), &error);
    moved(iter, status, error);
}

void leveldb_iter_next(leveldb_iterator_t *iter) {
    esker_error *error = NULL;
    esker_status status;
    if (!iter->is_valid) return;
    status = esker_cursor_next(iter->cursor, &error);
    moved(iter, status, error);
}

void leveldb_iter_prev(leveldb_iterator_t *iter) {
    esker_error *error = NULL;
    esker_status status;
    if (!iter->is_valid) return;
    status = esker_cursor_prev(iter->cursor, &error);
    moved(iter, status, error);
}

const char *leveldb_iter_key(const leveldb_iterator_t *iter, size_t *klen) {
    esker_slice key = esker_none();
    esker_cursor_entry(iter->cursor, &key, NULL, NULL);
    *klen = key.len;
    return (const char *)key.data;
}

const char *leveldb_iter_value(const leveldb_iterator_t *iter, size_t *vlen) {
    /* The value may be in another file than the key. A failure to read it belongs to the iterator. */
    leveldb_iterator_t *to = (leveldb_iterator_t *)(void *)iter;
    esker_slice key = esker_none(), value = esker_none();
    esker_error *error = NULL;
    esker_status status = esker_cursor_entry(iter->cursor, &key, &value, &error);
    is_well(status, error, &to->failure);
    *vlen = value.len;
    return (const char *)value.data;
}

void leveldb_iter_get_error(const leveldb_iterator_t *iter, char **errptr) {
    if (iter->failure == NULL) return;
    free(*errptr);
    *errptr = copy_of(iter->failure, strlen(iter->failure));
}

leveldb_writebatch_t *leveldb_writebatch_create(void) {
    return allocate(sizeof(leveldb_writebatch_t));
}

void leveldb_writebatch_destroy(leveldb_writebatch_t *batch) {
    if (batch == NULL) return;
    free(batch->data);
    free(batch);
}

void leveldb_writebatch_clear(leveldb_writebatch_t *batch) {
    batch->len = 0;
}

static void append(leveldb_writebatch_t *batch, const void *data, size_t len) {
    if (len > batch->capacity - batch->len) {
        batch->capacity = 2 * batch->capacity + len;
        batch->data = memory(realloc(batch->data, batch->capacity));
    }
    if (len > 0) memcpy(batch->data + batch->len, data, len);
    batch->len += len;
}

void leveldb_writebatch_put(leveldb_writebatch_t *batch, const char *key, size_t klen, const char *val, size_t vlen) {
    append(batch, &klen, sizeof klen);
    append(batch, &vlen, sizeof vlen);
    append(batch, key, klen);
    append(batch, val, vlen);
}

void leveldb_writebatch_delete(leveldb_writebatch_t *batch, const char *key, size_t klen) {
    size_t none = SIZE_MAX;
    append(batch, &klen, sizeof klen);
    append(batch, &none, sizeof none);
    append(batch, key, klen);
}

void leveldb_writebatch_iterate(const leveldb_writebatch_t *batch, void *state,
                                void (*put)(void *, const char *k, size_t klen, const char *v, size_t vlen),
                                void (*deleted)(void *, const char *k, size_t klen)) {
    const char *at = batch->data, *end = at + batch->len;
    while (at != end) {
        size_t klen, vlen;
        memcpy(&klen, at, sizeof klen);
        memcpy(&vlen, at + sizeof klen, sizeof vlen);
        at += sizeof klen + sizeof vlen;
        if (vlen == SIZE_MAX) {
            deleted(state, at, klen);
            at += klen;
        } else {
            put(state, at, klen, at + klen, vlen);
            at += klen + vlen;
        }
    }
}

void leveldb_writebatch_append(leveldb_writebatch_t *destination, const leveldb_writebatch_t *source) {
    size_t len = source->len, i;
    char *copy = memory(malloc(len + 1));
    /* The two may be one. */
    for (i = 0; i < len; ++i) copy[i] = source->data[i];
    append(destination, copy, len);
    free(copy);
}

leveldb_options_t *leveldb_options_create(void) {
    leveldb_options_t *options = allocate(sizeof *options);
    options->write_buffer_size = 4 << 20;
    options->cache = 8 << 20;
    options->compression = leveldb_snappy_compression;
    return options;
}

void leveldb_options_destroy(leveldb_options_t *options) {
    free(options);
}

void leveldb_options_set_comparator(leveldb_options_t *options, leveldb_comparator_t *comparator) {
    options->comparator = comparator;
}

void leveldb_options_set_create_if_missing(leveldb_options_t *options, uint8_t yes) {
    options->create_if_missing = yes;
}

void leveldb_options_set_error_if_exists(leveldb_options_t *options, uint8_t yes) {
    options->error_if_exists = yes;
}

void leveldb_options_set_write_buffer_size(leveldb_options_t *options, size_t size) {
    options->write_buffer_size = size;
}

void leveldb_options_set_cache(leveldb_options_t *options, leveldb_cache_t *cache) {
    options->cache = cache == NULL ? 8 << 20 : cache->capacity;
}

void leveldb_options_set_compression(leveldb_options_t *options, int compression) {
    options->compression = compression;
}

/* What Esker chooses for itself. Checksums are always verified. */
#define WITHOUT_EFFECT(name, type, value)                                                                   \
    void name(type *options, value given) {                                                                 \
        (void)options;                                                                                      \
        (void)given;                                                                                        \
    }

WITHOUT_EFFECT(leveldb_options_set_filter_policy, leveldb_options_t, leveldb_filterpolicy_t *)
WITHOUT_EFFECT(leveldb_options_set_paranoid_checks, leveldb_options_t, uint8_t)
WITHOUT_EFFECT(leveldb_options_set_env, leveldb_options_t, leveldb_env_t *)
WITHOUT_EFFECT(leveldb_options_set_info_log, leveldb_options_t, leveldb_logger_t *)
WITHOUT_EFFECT(leveldb_options_set_max_open_files, leveldb_options_t, int)
WITHOUT_EFFECT(leveldb_options_set_block_size, leveldb_options_t, size_t)
WITHOUT_EFFECT(leveldb_options_set_block_restart_interval, leveldb_options_t, int)
WITHOUT_EFFECT(leveldb_options_set_max_file_size, leveldb_options_t, size_t)
WITHOUT_EFFECT(leveldb_readoptions_set_verify_checksums, leveldb_readoptions_t, uint8_t)
WITHOUT_EFFECT(leveldb_readoptions_set_fill_cache, leveldb_readoptions_t, uint8_t)

leveldb_comparator_t *leveldb_comparator_create(void *state, void (*destructor)(void *),
                                                int (*compare)(void *, const char *a, size_t alen, const char *b,
                                                               size_t blen),
                                                const char *(*name)(void *)) {
    leveldb_comparator_t *comparator = allocate(sizeof *comparator);
    (void)compare;
    comparator->state = state;
    comparator->destructor = destructor;
    comparator->name = name;
    return comparator;
}

void leveldb_comparator_destroy(leveldb_comparator_t *comparator) {
    if (comparator == NULL) return;
    comparator->destructor(comparator->state);
    free(comparator);
}

leveldb_filterpolicy_t *leveldb_filterpolicy_create(
    void *state, void (*destructor)(void *),
    char *(*create_filter)(void *, const char *const *key_array, const size_t *key_length_array, int num_keys,
                           size_t *filter_length),
    uint8_t (*key_may_match)(void *, const char *key, size_t length, const char *filter, size_t filter_length),
    const char *(*name)(void *)) {
    leveldb_filterpolicy_t *policy = allocate(sizeof *policy);
    (void)create_filter;
    (void)key_may_match;
    (void)name;
    policy->state = state;
    policy->destructor = destructor;
    return policy;
}

leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits_per_key) {
    (void)bits_per_key;
    return allocate(sizeof(leveldb_filterpolicy_t));
}

void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t *policy) {
    if (policy == NULL) return;
    if (policy->destructor != NULL) policy->destructor(policy->state);
    free(policy);
}

leveldb_readoptions_t *leveldb_readoptions_create(void) {
    return allocate(sizeof(leveldb_readoptions_t));
}

void leveldb_readoptions_destroy(leveldb_readoptions_t *options) {
    free(options);
}

void leveldb_readoptions_set_snapshot(leveldb_readoptions_t *options, const leveldb_snapshot_t *snapshot) {
    options->snapshot = snapshot;
}

leveldb_writeoptions_t *leveldb_writeoptions_create(void) {
    return allocate(sizeof(leveldb_writeoptions_t));
}

void leveldb_writeoptions_destroy(leveldb_writeoptions_t *options) {
    free(options);
}

void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *options, uint8_t yes) {
    options->sync = yes;
}

leveldb_cache_t *leveldb_cache_create_lru(size_t capacity) {
    leveldb_cache_t *cache = allocate(sizeof *cache);
    cache->capacity = capacity;
    return cache;
}

void leveldb_cache_destroy(leveldb_cache_t *cache) {
    free(cache);
}

leveldb_env_t *leveldb_create_default_env(void) {
    return allocate(sizeof(leveldb_env_t));
}

void leveldb_env_destroy(leveldb_env_t *env) {
    free(env);
}

char *leveldb_env_get_test_directory(leveldb_env_t *env) {
    const char *named = getenv("TEST_TMPDIR");
    char path[100];
    (void)env;
    if (named != NULL && *named != 0) return copy_of(named, strlen(named));
    snprintf(path, sizeof path, "/tmp/leveldbtest-%lu", (unsigned long)geteuid());
    mkdir(path, 0755);
    return copy_of(path, strlen(path));
}

void leveldb_free(void *ptr) {
    free(ptr);
}

int leveldb_major_version(void) {
    return 1;
}

int leveldb_minor_version(void) {
    return 23;
}
