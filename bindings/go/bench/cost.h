/* The calls of the Go binding's get and range, repeated in C. Each returns a status of esker.h. */

#include <esker.h>

int cost_open(const char *path, uint64_t memory, esker_db **db, esker_keyspace **keyspace);
int cost_close(esker_db *db, esker_keyspace *keyspace);

/* Calls a function that does nothing. */
void cost_empty(size_t count);
/* Reads keys that are `key_len` bytes each, and copies their values. */
int cost_gets(const esker_keyspace *keyspace, const uint8_t *keys, size_t key_len, size_t count);
/* Reads some entries from each of such keys on. */
int cost_ranges(const esker_keyspace *keyspace, const uint8_t *keys, size_t key_len, size_t count,
                size_t entries);
/* Reads all entries in chunks, and sets their number. */
int cost_scan(const esker_keyspace *keyspace, size_t chunk, size_t *entries);
