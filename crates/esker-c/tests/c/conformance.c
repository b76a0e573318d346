/* Replays the conformance file. argv[1] is a directory for databases. Each line of the input is a call, in
 * words that a space separates; it is answered by a line. A word of bytes is `=` and hexadecimal digits, `-`
 * is none. */
#include "check.h"


#include <time.h>

#define TXNS 512
#define SPACES 16

static const char *root;
static int copies;
static esker_db *db;
static esker_txn *txns[TXNS];
static uint64_t savepoints[16], mark;
static struct {
    esker_keyspace *handle;
    uint32_t id;
} spaces[SPACES];
static size_t space_count;

/* The words of the line, and the bytes of those that are bytes. */
static char *next_word;
static uint8_t *memory, *free_memory;

static char *word(void) {
    char *start = next_word;
    if (start == NULL) return NULL;
    next_word = strchr(start, ' ');
    if (next_word != NULL) *next_word++ = 0;
    return start;
}

static int digit(char c) {
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static esker_slice bytes_of(const char *text) {
    esker_slice bytes = esker_none();
    if (text == NULL || *text != '=') return bytes;
    bytes.data = free_memory;
    for (++text; *text != 0; text += 2) *free_memory++ = (uint8_t)(digit(text[0]) << 4 | digit(text[1]));
    bytes.len = (size_t)(free_memory - bytes.data);
    *free_memory++ = 0;
    return bytes;
}

/* A word as a C string. */
static const char *text_of(const char *text) {
    return (const char *)bytes_of(text).data;
}

static void print_bytes(const uint8_t *data, size_t len) {
    size_t i;
    if (data == NULL) {
        fputs("-", stdout);
        return;
    }
    putchar('=');
    for (i = 0; i < len; ++i) printf("%02x", data[i]);
}

/* Prints what stands before all words of a list but the first. */
static void between(size_t *count) {
    if ((*count)++ > 0) putchar(' ');
}

static void print_value(int status, esker_value *value) {
    CHECK(status == ESKER_OK || value->data == NULL);
    print_bytes(value->data, value->len);
    esker_value_free(value);
}

/* Runs a call that must not fail. */
#define DO(call)                                                                                   \
    do {                                                                                           \
        esker_error *error = NULL;                                                                 \
        int is = (int)(call);                                                                      \
        if (is > ESKER_BUFFER_TOO_SMALL) {                                                         \
            failed(is, error);                                                                     \
            return;                                                                                \
        }                                                                                          \
        status = is;                                                                               \
    } while (0)

static void failed(int status, esker_error *error) {
    const char *name = esker_status_name(status);
    CHECK(error != NULL && (int)esker_error_status(error) == status && *esker_error_text(error) != 0);
    esker_error_free(error);
    fputs("error ", stdout);
    for (; *name != 0; ++name) putchar(*name == ' ' ? '_' : *name);
}

static void open_at(int copy) {
    char path[1000];
    esker_options *options = esker_options_new();
    snprintf(path, sizeof path, "%s/db%d", root, copy);
    esker_options_set_feed(options, 64 << 20, 3600);
    OK(esker_options_set_durability(options, ESKER_DURABILITY_NONE, &error));
    OK(esker_open(path, options, &db, &error));
    esker_options_free(options);
}

static void close_all(void) {
    while (space_count > 0) esker_keyspace_free(spaces[--space_count].handle);
    OK(esker_close(db, &error));
}

/* The handle of a keyspace that a word names. */
static esker_keyspace *space(const char *name) {
    size_t i;
    esker_keyspace *handle;
    OK(esker_keyspace_open(db, text_of(name), &handle, &error));
    for (i = 0; i < space_count; ++i) {
        if (spaces[i].id == esker_keyspace_id(handle)) {
            esker_keyspace_free(handle);
            return spaces[i].handle;
        }
    }
    CHECK(space_count < SPACES);
    spaces[space_count].handle = handle;
    spaces[space_count].id = esker_keyspace_id(handle);
    return spaces[space_count++].handle;
}

static esker_txn *txn(const char *number) {
    return number == NULL || *number == '-' ? NULL : txns[atoi(number)];
}

static void print_name(void *context, const char *name) {
    between(context);
    print_bytes((const uint8_t *)name, strlen(name));
}

static void scan(void) {
    esker_keyspace *ks = space(word());
    esker_txn *t = txn(word());
    esker_slice start = bytes_of(word()), key, value;
    char *second = word();
    int is_prefix = strcmp(second, "prefix") == 0, status;
    esker_slice end = is_prefix ? esker_none() : bytes_of(second);
    uint32_t flags = strcmp(word(), "true") == 0 ? ESKER_ITER_REVERSE : 0;
    char *limit_word = word();
    size_t limit = *limit_word == '-' ? (size_t)-1 : (size_t)atol(limit_word), count = 0, words = 0;
    esker_iter *iter;
    if (is_prefix) {
        DO(esker_iter_prefix(ks, t, start, flags, &iter, &error));
    } else {
        DO(esker_iter_new(ks, t, esker_range_of(start, end), flags, &iter, &error));
    }
    while (count < limit) {
        DO(esker_iter_next(iter, &key, &value, &error));
        if (status == ESKER_NOT_FOUND) break;
        between(&words);
        print_bytes(key.data, key.len);
        between(&words);
        print_bytes(value.data, value.len);
        ++count;
    }
    esker_iter_free(iter);
}

static void feed(void) {
    static const char *const kinds[] = {"", "put", "merge", "delete", "", "delete_range"};
    esker_feed *feed;
    uint64_t seqno;
    size_t words = 0;
    int status;
    DO(esker_sync(db, &error));
    DO(esker_feed_after(db, mark, &feed, &error));
    for (;;) {
        esker_change change;
        int changes = 0;
        DO(esker_feed_next(feed, 0, &seqno, &error));
        if (status == ESKER_NOT_FOUND) break;
        for (;;) {
            esker_value name;
            size_t i;
            DO(esker_feed_change(feed, &change, &error));
            if (status == ESKER_NOT_FOUND) break;
            if (change.kind > ESKER_CHANGE_DELETE_RANGE || change.kind == ESKER_CHANGE_EXPIRE) continue;
            if (changes++ == 0) {
                between(&words);
                fputs("commit", stdout);
            }
            for (i = 0; i < space_count && spaces[i].id != change.keyspace; ++i) continue;
            CHECK(i < space_count);
            DO(esker_keyspace_name(spaces[i].handle, &name, &error));
            printf(" %s ", kinds[change.kind]);
            print_bytes(name.data, name.len);
            putchar(' ');
            print_bytes(change.key.data, change.key.len);
            putchar(' ');
            print_bytes(change.value.data, change.value.len);
            esker_value_free(&name);
        }
    }
    esker_feed_free(feed);
}

/* Reads fields up to the end of the line or to `)`, and packs them. */
static esker_value pack_fields(void) {
    esker_tuple *tuple = esker_tuple_new();
    esker_value packed;
    char *kind;
    while ((kind = word()) != NULL && *kind != ')') {
        esker_field field;
        esker_value inner;
        memset(&field, 0, sizeof field);
        memset(&inner, 0, sizeof inner);
        if (*kind == '(') {
            inner = pack_fields();
            field.kind = ESKER_FIELD_TUPLE;
            field.bytes = esker_bytes(inner.data, inner.len);
        } else if (strcmp(kind, "int") == 0) {
            char *number = word();
            field.kind = *number != '-' && strtoull(number, NULL, 10) >> 63 ? ESKER_FIELD_UINT : ESKER_FIELD_INT;
            field.integer = *number == '-' ? strtoll(number, NULL, 10) : (int64_t)strtoull(number, NULL, 10);
        } else if (strcmp(kind, "bool") == 0) {
            field.kind = ESKER_FIELD_BOOL;
            field.integer = strcmp(word(), "true") == 0;
        } else if (strcmp(kind, "null") != 0) {
            uint64_t bits = 0;
            size_t i;
            field.bytes = bytes_of(word());
            field.kind = *kind == 'b' ? ESKER_FIELD_BYTES : *kind == 't' ? ESKER_FIELD_TEXT : ESKER_FIELD_UUID;
            for (i = 0; i < field.bytes.len && i < 8; ++i) bits = bits << 8 | field.bytes.data[i];
            if (*kind == 'd') {
                field.kind = ESKER_FIELD_DOUBLE;
                memcpy(&field.number, &bits, sizeof field.number);
            } else if (*kind == 'f') {
                uint32_t half = (uint32_t)bits;
                float number;
                memcpy(&number, &half, sizeof number);
                field.kind = ESKER_FIELD_FLOAT;
                field.number = number;
            }
        }
        OK(esker_tuple_add(tuple, field, &error));
        esker_value_free(&inner);
    }
    OK(esker_tuple_pack(tuple, &packed, &error));
    esker_tuple_free(tuple);
    return packed;
}

static void pack(void) {
    esker_value packed = pack_fields(), again;
    esker_tuple *tuple, *copy = esker_tuple_new();
    esker_field field;
    size_t i;
    OK(esker_tuple_unpack(esker_bytes(packed.data, packed.len), &tuple, &error));
    for (i = 0; i < esker_tuple_size(tuple); ++i) {
        OK(esker_tuple_get(tuple, i, &field, &error));
        OK(esker_tuple_add(copy, field, &error));
    }
    OK(esker_tuple_pack(copy, &again, &error));
    CHECK(packed.len == again.len && memcmp(packed.data, again.data, packed.len) == 0);
    print_bytes(packed.data, packed.len);
    esker_tuple_free(tuple);
    esker_tuple_free(copy);
    esker_value_free(&packed);
    esker_value_free(&again);
}

static void begin(void) {
    static const char *const names[] = {"default", "serializable", "snapshot", "exclusive", "read_only", "write_only"};
    int number = atoi(word()), status = 0;
    const char *name = word();
    uint32_t kind = 0;
    CHECK(number < TXNS);
    while (strcmp(names[kind], name) != 0) ++kind;
    DO(esker_begin(db, kind, &txns[number], &error));
    fputs(status == ESKER_OK ? "ok" : "?", stdout);
}

/* Calls of a database and its transactions. Returns 0 if the call is none. */
static int of_database(const char *call) {
    int status, number;
    if (strcmp(call, "names") == 0) {
        size_t words = 0;
        OK(esker_keyspace_names(db, print_name, &words, &error));
    } else if (strcmp(call, "commit") == 0) {
        esker_error *error = NULL;
        number = atoi(word());
        status = esker_commit(txns[number], ESKER_DURABILITY_DEFAULT, NULL, &error);
        esker_txn_free(txns[number]);
        if (status == ESKER_OK) fputs("ok", stdout);
        else failed(status, error);
    } else if (strcmp(call, "rollback") == 0) {
        esker_txn_free(txns[atoi(word())]);
        fputs("ok", stdout);
    } else if (strcmp(call, "savepoint") == 0) {
        esker_txn *t = txn(word());
        OK(esker_savepoint(t, &savepoints[atoi(word())], &error));
        fputs("ok", stdout);
    } else if (strcmp(call, "rollback_to") == 0) {
        esker_txn *t = txn(word());
        OK(esker_rollback_to(t, savepoints[atoi(word())], &error));
        fputs("ok", stdout);
    } else if (strcmp(call, "mark") == 0) {
        esker_newest_commit(db, &mark);
        fputs("ok", stdout);
    } else if (strcmp(call, "sleep") == 0) {
        struct timespec time;
        time.tv_sec = 0;
        time.tv_nsec = atol(word()) * 1000000;
        nanosleep(&time, NULL);
        fputs("ok", stdout);
    } else if (strcmp(call, "reopen") == 0) {
        close_all();
        open_at(copies);
        fputs("ok", stdout);
    } else if (strcmp(call, "checkpoint") == 0) {
        char path[1000];
        snprintf(path, sizeof path, "%s/db%d", root, copies + 1);
        OK(esker_checkpoint(db, path, &error));
        close_all();
        open_at(++copies);
        fputs("ok", stdout);
    } else {
        return 0;
    }
    return 1;
}

/* Calls that name a keyspace. */
static void of_keyspace(const char *call) {
    int status = 0;
    esker_slice key, value;
    esker_value found;
    esker_keyspace *ks;
    esker_txn *t;
    if (strcmp(call, "rename") == 0) {
        const char *from = text_of(word());
        DO(esker_keyspace_rename(db, from, text_of(word()), &error));
        fputs("ok", stdout);
        return;
    }
    if (strcmp(call, "drop") == 0) {
        DO(esker_keyspace_drop(db, text_of(word()), &error));
        fputs("ok", stdout);
        return;
    }
    ks = space(word());
    if (strcmp(call, "keyspace") == 0) {
        fputs("ok", stdout);
        return;
    }
    if (strcmp(call, "operator") == 0) {
        DO(esker_keyspace_set_merge_operator(ks, word(), &error));
        fputs("ok", stdout);
        return;
    }
    if (strcmp(call, "swap") == 0) {
        esker_swap swap;
        key = bytes_of(word());
        swap.expected = bytes_of(word());
        swap.new_ = bytes_of(word());
        DO(esker_compare_and_swap(ks, NULL, key, swap, NULL, &error));
        fputs(status == ESKER_OK ? "true" : "false", stdout);
        return;
    }
    t = txn(word());
    if (strcmp(call, "len") == 0) {
        uint64_t len;
        DO(esker_len(ks, t, &len, &error));
        printf("%lu", (unsigned long)len);
        return;
    }
    if (strcmp(call, "many") == 0) {
        esker_slice keys[8];
        esker_value values[8];
        size_t count = 0, i, words = 0;
        char *next;
        while ((next = word()) != NULL) keys[count++] = bytes_of(next);
        DO(esker_get_many(ks, t, keys, count, values, &error));
        for (i = 0; i < count; ++i) {
            between(&words);
            print_bytes(values[i].data, values[i].len);
            esker_value_free(&values[i]);
        }
        return;
    }
    key = bytes_of(word());
    if (strcmp(call, "get") == 0) {
        DO(esker_get(ks, t, key, &found, &error));
        print_value(status, &found);
    } else if (strcmp(call, "remove") == 0) {
        DO(esker_remove(ks, t, key, &found, &error));
        print_value(status, &found);
    } else if (strcmp(call, "contains") == 0) {
        DO(esker_contains(ks, t, key, &error));
        fputs(status == ESKER_OK ? "true" : "false", stdout);
    } else if (strcmp(call, "ttl") == 0) {
        uint64_t ttl;
        DO(esker_ttl(ks, t, key, &ttl, &error));
        fputs(status == ESKER_NOT_FOUND ? "missing" : ttl == UINT64_MAX ? "none" : "some", stdout);
    } else if (strcmp(call, "add") == 0) {
        int64_t old;
        DO(esker_fetch_add(ks, t, key, strtoll(word(), NULL, 10), &old, &error));
        printf("%lld", (long long)old);
    } else {
        value = bytes_of(word());
        if (strcmp(call, "put") == 0) {
            char *ttl = word();
            if (ttl == NULL) {
                DO(esker_put(ks, t, key, value, &error));
            } else {
                DO(esker_put_with_ttl(ks, t, key, value, (uint64_t)atol(ttl), &error));
            }
        } else if (strcmp(call, "delete") == 0) {
            DO(esker_delete(ks, t, key, &error));
        } else if (strcmp(call, "delete_prefix") == 0) {
            DO(esker_delete_prefix(ks, t, key, &error));
        } else if (strcmp(call, "delete_range") == 0) {
            DO(esker_delete_range(ks, t, esker_range_of(key, value), &error));
        } else if (strcmp(call, "merge") == 0) {
            DO(esker_merge(ks, t, key, value, &error));
        } else {
            fprintf(stderr, "%s is not known\n", call);
            exit(1);
        }
        fputs("ok", stdout);
    }
}

static void unpack(void) {
    esker_tuple *tuple;
    int status;
    DO(esker_tuple_unpack(bytes_of(word()), &tuple, &error));
    CHECK(status != ESKER_OK);
}

int main(int argc, char **argv) {
    static char line[1 << 20];
    CHECK(argc == 2);
    root = argv[1];
    memory = malloc(sizeof line);
    open_at(0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *call;
        line[strcspn(line, "\n")] = 0;
        next_word = line;
        free_memory = memory;
        call = word();
        if (strcmp(call, "pack") == 0) pack();
        else if (strcmp(call, "unpack") == 0) unpack();
        else if (strcmp(call, "begin") == 0) begin();
        else if (strcmp(call, "scan") == 0) scan();
        else if (strcmp(call, "feed") == 0) feed();
        else if (!of_database(call)) of_keyspace(call);
        putchar('\n');
        fflush(stdout);
    }
    close_all();
    free(memory);
    return 0;
}
