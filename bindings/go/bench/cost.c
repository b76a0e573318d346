#include "cost.h"

#include <stdlib.h>
#include <string.h>

/* Keeps the compiler from dropping reads. */
static volatile uint64_t sink;

int cost_open(const char *path, uint64_t memory, esker_db **db, esker_keyspace **keyspace) {
    esker_options *options = esker_options_new();
    esker_options_set_memory(options, memory);
    int status = esker_open(path, options, db, NULL);
    esker_options_free(options);
    return status == ESKER_OK ? esker_keyspace_open(*db, "map", keyspace, NULL) : status;
}

int cost_close(esker_db *db, esker_keyspace *keyspace) {
    esker_keyspace_free(keyspace);
    return esker_close(db, NULL);
}

void cost_empty(size_t count) {
    for (size_t n = 0; n < count; n++) sink += (uintptr_t)esker_version();
}

int cost_gets(const esker_keyspace *keyspace, const uint8_t *keys, size_t key_len, size_t count) {
    uint8_t buffer[512];
    for (size_t n = 0; n < count; n++, keys += key_len) {
        esker_value value;
        int status = esker_get(keyspace, NULL, esker_bytes(keys, key_len), &value, NULL);
        if (status != ESKER_OK) return status;
        if (value.len > sizeof buffer) return ESKER_BUFFER_TOO_SMALL;
        memcpy(buffer, value.data, value.len);
        sink += buffer[0] + value.len;
        esker_value_free(&value);
    }
    return ESKER_OK;
}

int cost_ranges(const esker_keyspace *keyspace, const uint8_t *keys, size_t key_len, size_t count,
                size_t entries) {
    for (size_t n = 0; n < count; n++, keys += key_len) {
        esker_range range = {esker_bytes(keys, key_len), {0}};
        esker_iter *iter = NULL;
        esker_slice key, value;
        int status = esker_iter_new(keyspace, NULL, range, 0, &iter, NULL);
        for (size_t at = 0; at < entries && status == ESKER_OK; at++) {
            status = esker_iter_next(iter, &key, &value, NULL);
            if (status == ESKER_OK) sink += value.data[0] + key.len + value.len;
        }
        esker_iter_free(iter);
        if (status != ESKER_OK && status != ESKER_NOT_FOUND) return status;
    }
    return ESKER_OK;
}

int cost_scan(const esker_keyspace *keyspace, size_t chunk, size_t *entries) {
    esker_iter *iter = NULL;
    uint8_t *data = malloc(chunk);
    esker_range all = {0};
    size_t count = 0, bytes = 0;
    int status = data == NULL ? ESKER_OTHER : esker_iter_new(keyspace, NULL, all, 0, &iter, NULL);
    *entries = 0;
    while (status == ESKER_OK) {
        esker_buffer buffer = {data, chunk};
        status = esker_iter_fill(iter, buffer, &count, &bytes, NULL);
        if (status != ESKER_OK || count == 0) break;
        *entries += count;
        for (size_t at = 0; at < bytes;) {
            uint32_t lens[2];
            memcpy(lens, data + at, sizeof lens);
            sink += data[at + sizeof lens + lens[0]] + lens[0] + lens[1];
            at += sizeof lens + lens[0] + lens[1];
        }
    }
    esker_iter_free(iter);
    free(data);
    return status;
}
