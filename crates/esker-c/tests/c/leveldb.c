/* What programs do with LevelDB's C API, on a database in the directory argv[1]. */
#define _XOPEN_SOURCE 700

#include "leveldb/c.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #what,                 \
                    error == NULL ? "no error" : error);                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define WELL() CHECK(error == NULL)

static char *error;
static leveldb_t *db;
static leveldb_options_t *options;
static leveldb_readoptions_t *reads;
static leveldb_writeoptions_t *writes;

/* Checks that the last call failed with a message that begins with a text. */
static void failed(const char *with) {
    CHECK(error != NULL && strncmp(error, with, strlen(with)) == 0);
    leveldb_free(error);
    error = NULL;
}

static int is(const char *bytes, size_t len, const char *text) {
    return text == NULL ? bytes == NULL : bytes != NULL && len == strlen(text) && memcmp(bytes, text, len) == 0;
}

static void expect(const char *key, const char *value) {
    size_t len;
    char *found = leveldb_get(db, reads, key, strlen(key), &len, &error);
    WELL();
    CHECK(is(found, len, value));
    leveldb_free(found);
}

static void put(const char *key, const char *value) {
    leveldb_put(db, writes, key, strlen(key), value, strlen(value), &error);
    WELL();
}

static void expect_at(leveldb_iterator_t *iter, const char *key, const char *value) {
    const char *found;
    size_t len;
    CHECK(leveldb_iter_valid(iter));
    found = leveldb_iter_key(iter, &len);
    CHECK(is(found, len, key));
    found = leveldb_iter_value(iter, &len);
    CHECK(is(found, len, value));
}

static void note_put(void *state, const char *k, size_t klen, const char *v, size_t vlen) {
    sprintf((char *)state + strlen(state), "+%.*s=%.*s ", (int)klen, k, (int)vlen, v);
}

static void note_deleted(void *state, const char *k, size_t klen) {
    sprintf((char *)state + strlen(state), "-%.*s ", (int)klen, k);
}

static void batches(void) {
    leveldb_writebatch_t *batch = leveldb_writebatch_create(), *more = leveldb_writebatch_create();
    char text[200] = "";
    leveldb_writebatch_put(batch, "gone", 4, "x", 1);
    leveldb_writebatch_clear(batch);
    leveldb_writebatch_put(batch, "b", 1, "2", 1);
    leveldb_writebatch_put(batch, "c", 1, "", 0);
    leveldb_writebatch_delete(batch, "b", 1);
    leveldb_writebatch_put(more, "d", 1, "4", 1);
    leveldb_writebatch_append(batch, more);
    leveldb_writebatch_append(more, more);
    leveldb_writebatch_iterate(batch, text, note_put, note_deleted);
    CHECK(strcmp(text, "+b=2 +c= -b +d=4 ") == 0);
    leveldb_write(db, writes, batch, &error);
    WELL();
    expect("gone", NULL);
    expect("b", NULL);
    expect("c", "");
    expect("d", "4");
    leveldb_writebatch_destroy(batch);
    leveldb_writebatch_destroy(more);
}

static void iterators(void) {
    leveldb_iterator_t *iter = leveldb_create_iterator(db, reads);
    CHECK(!leveldb_iter_valid(iter));
    leveldb_iter_seek_to_first(iter);
    expect_at(iter, "a", "1");
    put("aa", "not seen: the iterator is older");
    leveldb_iter_next(iter);
    expect_at(iter, "c", "");
    leveldb_iter_prev(iter);
    expect_at(iter, "a", "1");
    leveldb_iter_prev(iter);
    CHECK(!leveldb_iter_valid(iter));
    leveldb_iter_seek_to_last(iter);
    expect_at(iter, "d", "4");
    leveldb_iter_next(iter);
    CHECK(!leveldb_iter_valid(iter));
    leveldb_iter_seek(iter, "b", 1);
    expect_at(iter, "c", "");
    leveldb_iter_get_error(iter, &error);
    WELL();
    leveldb_iter_destroy(iter);
}

static void snapshots(void) {
    const leveldb_snapshot_t *snapshot = leveldb_create_snapshot(db);
    leveldb_delete(db, writes, "a", 1, &error);
    WELL();
    expect("a", NULL);
    leveldb_readoptions_set_snapshot(reads, snapshot);
    expect("a", "1");
    leveldb_readoptions_set_snapshot(reads, NULL);
    leveldb_release_snapshot(db, snapshot);
}

static void sizes_and_compactions(void) {
    const char *starts[2] = {"k00000", "z"}, *limits[2] = {"k20000", "zz"};
    size_t start_lens[2] = {6, 1}, limit_lens[2] = {6, 2};
    uint64_t sizes[2];
    char key[16], value[64], *stats;
    int n;
    leveldb_writeoptions_set_sync(writes, 0);
    for (n = 0; n < 20000; ++n) {
        sprintf(key, "k%05d", n);
        sprintf(value, "value %d", n);
        put(key, value);
    }
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    leveldb_compact_range(db, "k1", 2, "k2", 2);
    leveldb_approximate_sizes(db, 2, starts, start_lens, limits, limit_lens, sizes);
    CHECK(sizes[0] > 10000 && sizes[1] == 0);
    CHECK(leveldb_property_value(db, "no such property") == NULL);
    stats = leveldb_property_value(db, "leveldb.stats");
    CHECK(stats != NULL && strlen(stats) > 100);
    leveldb_free(stats);
}

static int destroyed;

static void destroy(void *state) {
    ++*(int *)state;
}

static int compare(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    int order = memcmp(a, b, alen < blen ? alen : blen);
    (void)state;
    return order != 0 ? order : (alen > blen) - (alen < blen);
}

static const char *bytewise(void *state) {
    (void)state;
    return "leveldb.BytewiseComparator";
}

static const char *reversed(void *state) {
    (void)state;
    return "reversed";
}

static void comparators(const char *path) {
    leveldb_comparator_t *usual = leveldb_comparator_create(&destroyed, destroy, compare, bytewise);
    leveldb_comparator_t *other = leveldb_comparator_create(&destroyed, destroy, compare, reversed);
    leveldb_options_set_comparator(options, other);
    CHECK(leveldb_open(options, path, &error) == NULL);
    failed("Invalid argument: ");
    leveldb_options_set_comparator(options, usual);
    db = leveldb_open(options, path, &error);
    WELL();
    CHECK(leveldb_open(options, path, &error) == NULL);
    failed("IO error: ");
    leveldb_close(db);
    leveldb_options_set_comparator(options, NULL);
    leveldb_comparator_destroy(usual);
    leveldb_comparator_destroy(other);
    CHECK(destroyed == 2);
}

/* Whether a file exists. Else it is made. */
static int is_there(const char *path, int make) {
    FILE *file = fopen(path, make ? "w" : "r");
    if (file != NULL) fclose(file);
    return file != NULL;
}

/* Destroying a database removes its files, and no others. */
static void foreign_files(const char *path) {
    char notes[4096], current[4096];
    sprintf(notes, "%s/notes", path);
    sprintf(current, "%s/CURRENT", path);
    CHECK(is_there(notes, 1) && is_there(current, 0));
    leveldb_destroy_db(options, path, &error);
    WELL();
    CHECK(is_there(notes, 0) && !is_there(current, 0));
    leveldb_destroy_db(options, path, &error);
    WELL();
    CHECK(is_there(notes, 0));
    leveldb_destroy_db(options, notes, &error);
    failed("IO error: ");
    leveldb_repair_db(options, notes, &error);
    failed("Invalid argument: ");
    CHECK(is_there(notes, 0));
    CHECK(remove(notes) == 0);
}

/* Changes a byte in the middle of the table of a database. */
static void change_table(const char *path) {
    char name[4096];
    const struct dirent *entry;
    FILE *file;
    int byte;
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    name[0] = 0;
    while ((entry = readdir(dir)) != NULL) {
        if (strstr(entry->d_name, ".sst") != NULL) snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
    }
    closedir(dir);
    CHECK((file = fopen(name, "r+b")) != NULL && fseek(file, 0, SEEK_END) == 0);
    CHECK(fseek(file, ftell(file) / 2, SEEK_SET) == 0 && (byte = fgetc(file)) != EOF);
    CHECK(fseek(file, -1, SEEK_CUR) == 0 && fputc(byte ^ 1, file) != EOF && fclose(file) == 0);
}

/* An iterator that meets damage ends with an error. */
static void damage(const char *path) {
    leveldb_iterator_t *iter;
    char key[32], copy[4096];
    int i, direction;
    db = leveldb_open(options, path, &error);
    WELL();
    for (i = 0; i < 5000; ++i) {
        sprintf(key, "%06d", i);
        leveldb_put(db, NULL, key, 6, key, 6, &error);
        WELL();
    }
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    leveldb_close(db);
    change_table(path);
    db = leveldb_open(options, path, &error);
    WELL();
    for (direction = 0; direction < 2; ++direction) {
        iter = leveldb_create_iterator(db, reads);
        if (direction == 0) leveldb_iter_seek_to_first(iter);
        else leveldb_iter_seek_to_last(iter);
        for (i = 0; leveldb_iter_valid(iter); ++i) {
            if (direction == 0) leveldb_iter_next(iter);
            else leveldb_iter_prev(iter);
        }
        CHECK(i > 0 && i < 5000);
        leveldb_iter_get_error(iter, &error);
        failed("Corruption: ");
        leveldb_iter_destroy(iter);
    }
    leveldb_close(db);
    leveldb_repair_db(options, path, &error);
    WELL();
    sprintf(copy, "%s.damaged", path);
    leveldb_destroy_db(options, copy, &error);
    WELL();
    leveldb_destroy_db(options, path, &error);
    WELL();
}

int main(int argc, char **argv) {
    char copy[4096];
    leveldb_cache_t *cache = leveldb_cache_create_lru(1 << 20);
    leveldb_filterpolicy_t *filter = leveldb_filterpolicy_create_bloom(10);
    leveldb_env_t *env = leveldb_create_default_env();
    CHECK(argc == 2);
    CHECK(leveldb_major_version() == 1 && leveldb_minor_version() == 23);
    options = leveldb_options_create();
    reads = leveldb_readoptions_create();
    writes = leveldb_writeoptions_create();
    leveldb_options_set_cache(options, cache);
    leveldb_options_set_filter_policy(options, filter);
    leveldb_options_set_env(options, env);
    leveldb_options_set_write_buffer_size(options, 1 << 20);
    leveldb_options_set_compression(options, leveldb_no_compression);
    leveldb_readoptions_set_verify_checksums(reads, 1);
    leveldb_writeoptions_set_sync(writes, 1);

    leveldb_destroy_db(options, argv[1], &error);
    WELL();
    CHECK(leveldb_open(options, argv[1], &error) == NULL);
    failed("Invalid argument: ");
    leveldb_options_set_create_if_missing(options, 1);
    db = leveldb_open(options, argv[1], &error);
    WELL();
    put("a", "1");
    expect("a", "1");
    batches();
    iterators();
    snapshots();
    sizes_and_compactions();
    leveldb_destroy_db(options, argv[1], &error);
    failed("IO error: ");
    leveldb_close(db);

    comparators(argv[1]);
    leveldb_repair_db(options, argv[1], &error);
    WELL();
    leveldb_options_set_error_if_exists(options, 1);
    CHECK(leveldb_open(options, argv[1], &error) == NULL);
    failed("Invalid argument: ");
    leveldb_options_set_error_if_exists(options, 0);
    db = leveldb_open(options, argv[1], &error);
    WELL();
    expect("a", NULL);
    expect("d", "4");
    expect("k01234", "value 1234");
    leveldb_close(db);
    foreign_files(argv[1]);
    sprintf(copy, "%s.damaged", argv[1]);
    leveldb_destroy_db(options, copy, &error);
    WELL();
    damage(argv[1]);
    leveldb_options_destroy(options);
    leveldb_readoptions_destroy(reads);
    leveldb_writeoptions_destroy(writes);
    leveldb_cache_destroy(cache);
    leveldb_filterpolicy_destroy(filter);
    leveldb_env_destroy(env);
    puts("ok");
    return 0;
}
