/* Every function of esker.h, alone and together, on a database in the directory argv[1]. */
#include "check.h"

static void count_names(void *context, const char *name) {
    (void)name;
    ++*(int *)context;
}

static void find_items(void *context, const char *name, double value) {
    if (strcmp(name, "items") == 0) *(double *)context = value;
}

/* Keeps the longest operand. */
static uint64_t longest(void *context, esker_slice existing, const esker_slice *operands, size_t count,
                        esker_buffer result) {
    size_t i;
    ++*(int *)context;
    for (i = 0; i < count; ++i) {
        if (existing.data == NULL || operands[i].len > existing.len) existing = operands[i];
    }
    if (existing.len > 400) return UINT64_MAX;
    if (existing.len <= result.len) memcpy(result.data, existing.data, existing.len);
    return existing.len;
}

static esker_db *open_at(const char *path, int *merges) {
    esker_options *options = esker_options_new();
    esker_db *db = NULL;
    esker_options_set_memory(options, 32 << 20);
    esker_options_set_feed(options, 8 << 20, 3600);
    esker_options_set_blobs_from(options, 4096);
    OK(esker_options_set_durability(options, ESKER_DURABILITY_BUFFERED, &error));
    EXPECT(ESKER_INVALID, esker_options_set_durability(options, 77, &error));
    OK(esker_options_add_merge_operator(options, "longest", longest, merges, &error));
    OK(esker_open(path, options, &db, &error));
    esker_options_free(options);
    return db;
}

static esker_status swap(const esker_keyspace *ks, const char *key, esker_slice expected, esker_slice new_value,
                         esker_value *old, esker_error **error) {
    esker_swap values = {expected, new_value};
    return esker_compare_and_swap(ks, NULL, esker_text(key), values, old, error);
}

static void puts_and_gets(esker_db *db) {
    esker_keyspace *ks, *sync;
    esker_value value, values[3];
    esker_slice keys[3];
    esker_txn *txn;
    char small[4], *large = malloc(100000);
    size_t len;
    uint64_t number;
    int64_t old;

    OK(esker_keyspace_open(db, "first", &ks, &error));
    OK(esker_put(ks, NULL, esker_text("a"), esker_text("1"), &error));
    OK(esker_put(ks, NULL, esker_text("b"), esker_text(""), &error));
    memset(large, 'x', 100000);
    OK(esker_put(ks, NULL, esker_bytes("c\0d", 3), esker_bytes(large, 100000), &error));
    expect_value(ks, NULL, "a", "1");
    expect_value(ks, NULL, "b", "");
    expect_value(ks, NULL, "c", NULL);
    OK(esker_get(ks, NULL, esker_bytes("c\0d", 3), &value, &error));
    CHECK(value.len == 100000 && memcmp(value.data, large, value.len) == 0);
    esker_value_free(&value);
    esker_value_free(&value);
    free(large);

    esker_buffer buffer = {(uint8_t *)small, sizeof small};
    OK(esker_get_into(ks, NULL, esker_text("a"), buffer, &len, &error));
    CHECK(len == 1 && small[0] == '1');
    EXPECT(ESKER_BUFFER_TOO_SMALL, esker_get_into(ks, NULL, esker_bytes("c\0d", 3), buffer, &len, &error));
    CHECK(len == 100000);
    EXPECT(ESKER_NOT_FOUND, esker_get_into(ks, NULL, esker_text("z"), buffer, &len, &error));

    keys[0] = esker_text("b"), keys[1] = esker_text("z"), keys[2] = esker_text("a");
    OK(esker_get_many(ks, NULL, keys, 3, values, &error));
    CHECK(values[0].data != NULL && values[0].len == 0 && values[1].data == NULL);
    IS(values[2], "1");
    for (len = 0; len < 3; ++len) esker_value_free(&values[len]);
    OK(esker_get_many(ks, NULL, NULL, 0, NULL, &error));

    /* A length without data is a mistake: not the empty key, no range without an end. */
    esker_slice lost = esker_bytes(NULL, 3);
    EXPECT(ESKER_INVALID, esker_get_many(ks, NULL, NULL, 3, values, &error));
    EXPECT(ESKER_INVALID, esker_get_many(ks, NULL, &lost, 1, values, &error));
    EXPECT(ESKER_INVALID, esker_get(ks, NULL, lost, &value, &error));
    EXPECT(ESKER_INVALID, esker_put(ks, NULL, lost, esker_text("v"), &error));
    EXPECT(ESKER_INVALID, esker_put(ks, NULL, esker_text("a"), lost, &error));
    EXPECT(ESKER_INVALID, esker_delete(ks, NULL, lost, &error));
    EXPECT(ESKER_INVALID, esker_delete_prefix(ks, NULL, lost, &error));
    EXPECT(ESKER_INVALID, esker_delete_range(ks, NULL, esker_range_of(lost, esker_none()), &error));
    EXPECT(ESKER_INVALID, esker_delete_range(ks, NULL, esker_range_of(esker_none(), lost), &error));
    EXPECT(ESKER_INVALID, swap(ks, "a", esker_text("1"), lost, NULL, &error));
    expect_value(ks, NULL, "a", "1");

    OK(esker_contains(ks, NULL, esker_text("a"), &error));
    EXPECT(ESKER_NOT_FOUND, esker_contains(ks, NULL, esker_text("z"), &error));
    OK(esker_len(ks, NULL, &number, &error));
    CHECK(number == 3);

    OK(esker_ttl(ks, NULL, esker_text("a"), &number, &error));
    CHECK(number == UINT64_MAX);
    OK(esker_put_with_ttl(ks, NULL, esker_text("t"), esker_text("soon"), 60000, &error));
    OK(esker_ttl(ks, NULL, esker_text("t"), &number, &error));
    CHECK(number > 1000 && number <= 60000);
    EXPECT(ESKER_NOT_FOUND, esker_ttl(ks, NULL, esker_text("z"), &number, &error));
    OK(esker_expire(ks, NULL, esker_text("t"), UINT64_MAX, &error));
    OK(esker_ttl(ks, NULL, esker_text("t"), &number, &error));
    CHECK(number == UINT64_MAX);
    OK(esker_expire(ks, NULL, esker_text("t"), 60000, &error));
    OK(esker_ttl(ks, NULL, esker_text("t"), &number, &error));
    CHECK(number > 1000 && number <= 60000);
    EXPECT(ESKER_NOT_FOUND, esker_expire(ks, NULL, esker_text("z"), 60000, &error));
    EXPECT(ESKER_NOT_FOUND, esker_expire(ks, NULL, esker_text("z"), UINT64_MAX, &error));
    OK(esker_begin(db, ESKER_TXN_DEFAULT, &txn, &error));
    OK(esker_expire(ks, txn, esker_text("t"), 0, &error));
    EXPECT(ESKER_NOT_FOUND, esker_expire(ks, txn, esker_text("t"), UINT64_MAX, &error));
    expect_value(ks, NULL, "t", "soon");
    esker_txn_free(txn);

    OK(esker_remove(ks, NULL, esker_text("t"), &value, &error));
    IS(value, "soon");
    esker_value_free(&value);
    EXPECT(ESKER_NOT_FOUND, esker_remove(ks, NULL, esker_text("t"), NULL, &error));
    EXPECT(ESKER_NOT_SWAPPED, swap(ks, "a", esker_text("2"), esker_text("3"), &value, &error));
    IS(value, "1");
    esker_value_free(&value);
    OK(swap(ks, "a", esker_text("1"), esker_none(), NULL, &error));
    expect_value(ks, NULL, "a", NULL);
    OK(swap(ks, "a", esker_none(), esker_text("1"), NULL, &error));
    OK(esker_fetch_add(ks, NULL, esker_text("n"), 40, &old, &error));
    OK(esker_fetch_add(ks, NULL, esker_text("n"), -42, &old, &error));
    CHECK(old == 40);
    OK(esker_delete(ks, NULL, esker_text("n"), &error));

    OK(esker_keyspace_with_durability(ks, ESKER_DURABILITY_SYNC, &sync, &error));
    OK(esker_put(sync, NULL, esker_text("synced"), esker_text("yes"), &error));
    OK(esker_delete_prefix(sync, NULL, esker_text("syn"), &error));
    expect_value(ks, NULL, "synced", NULL);
    CHECK(esker_keyspace_id(ks) == esker_keyspace_id(sync));
    esker_keyspace_free(sync);
    OK(esker_keyspace_name(ks, &value, &error));
    IS(value, "first");
    esker_value_free(&value);
    OK(esker_approximate_size(ks, esker_range_of(esker_none(), esker_none()), &number, &error));
    esker_keyspace_free(ks);
}

static int32_t move_one(void *context, esker_txn *txn) {
    esker_keyspace *ks = context;
    int64_t old;
    int32_t status = esker_fetch_add(ks, txn, esker_text("from"), -1, &old, NULL);
    if (status != ESKER_OK) return status;
    if (old < 1) return 1000;
    return esker_fetch_add(ks, txn, esker_text("to"), 1, &old, NULL);
}

static void transactions(esker_db *db) {
    esker_keyspace *ks;
    esker_txn *one, *two, *batch, *snapshot;
    esker_value value;
    uint64_t seqno, point, number;
    int64_t old;

    OK(esker_keyspace_open(db, "txn", &ks, &error));
    OK(esker_put(ks, NULL, esker_text("k"), esker_text("0"), &error));
    OK(esker_begin(db, ESKER_TXN_READ_ONLY, &snapshot, &error));
    OK(esker_begin(db, ESKER_TXN_DEFAULT, &one, &error));
    OK(esker_begin(db, ESKER_TXN_SERIALIZABLE, &two, &error));
    expect_value(ks, one, "k", "0");
    expect_value(ks, two, "k", "0");
    OK(esker_put(ks, one, esker_text("k"), esker_text("1"), &error));
    OK(esker_put(ks, two, esker_text("k"), esker_text("2"), &error));
    expect_value(ks, one, "k", "1");
    expect_value(ks, NULL, "k", "0");
    OK(esker_commit(one, ESKER_DURABILITY_SYNC, &seqno, &error));
    EXPECT(ESKER_INVALID, esker_commit(one, 0, &seqno, &error));
    EXPECT(ESKER_INVALID, esker_put(ks, one, esker_text("k"), esker_text("9"), &error));
    EXPECT(ESKER_CONFLICT, esker_commit(two, 0, NULL, &error));
    esker_txn_free(one);
    esker_txn_free(two);
    expect_value(ks, NULL, "k", "1");
    expect_value(ks, snapshot, "k", "0");
    CHECK(esker_txn_seqno(snapshot) < seqno);
    EXPECT(ESKER_INVALID, esker_put(ks, snapshot, esker_text("k"), esker_text("9"), &error));
    EXPECT(ESKER_INVALID, esker_fetch_add(ks, snapshot, esker_text("k"), 1, &old, &error));
    esker_newest_commit(db, &number);
    CHECK(number >= seqno);

    OK(esker_begin(db, ESKER_TXN_WRITE_ONLY, &batch, &error));
    OK(esker_put(ks, batch, esker_text("from"), esker_bytes("\3\0\0\0\0\0\0\0", 8), &error));
    OK(esker_put_with_ttl(ks, batch, esker_text("t"), esker_text("x"), 50000, &error));
    OK(esker_delete(ks, batch, esker_text("k"), &error));
    EXPECT(ESKER_INVALID, esker_get(ks, batch, esker_text("k"), &value, &error));
    EXPECT(ESKER_INVALID, esker_savepoint(batch, &point, &error));
    OK(esker_commit(batch, ESKER_DURABILITY_NONE, NULL, &error));
    esker_txn_free(batch);
    expect_value(ks, NULL, "k", NULL);

    OK(esker_begin(db, ESKER_TXN_SNAPSHOT, &one, &error));
    OK(esker_lock(ks, one, esker_text("k"), false, &error));
    OK(esker_put(ks, one, esker_text("k"), esker_text("1"), &error));
    OK(esker_savepoint(one, &point, &error));
    OK(esker_delete_range(ks, one, esker_range_of(esker_text("a"), esker_none()), &error));
    expect_value(ks, one, "k", NULL);
    OK(esker_rollback_to(one, point, &error));
    expect_value(ks, one, "k", "1");
    EXPECT(ESKER_INVALID, esker_rollback_to(one, point + 1, &error));
    EXPECT(ESKER_INVALID, esker_rollback_to(one, 0, &error));
    esker_txn_free(one);
    expect_value(ks, NULL, "k", NULL);
    EXPECT(ESKER_INVALID, esker_begin(db, 99, &one, &error));

    CHECK(esker_transact(db, ESKER_TXN_DEFAULT, move_one, ks, NULL) == ESKER_OK);
    CHECK(esker_transact(db, ESKER_TXN_EXCLUSIVE, move_one, ks, NULL) == ESKER_OK);
    CHECK(esker_transact(db, ESKER_TXN_SNAPSHOT, move_one, ks, NULL) == ESKER_OK);
    CHECK(esker_transact(db, ESKER_TXN_DEFAULT, move_one, ks, NULL) == 1000);
    EXPECT(ESKER_INVALID, esker_transact(db, ESKER_TXN_READ_ONLY, move_one, ks, &error));
    OK(esker_fetch_add(ks, NULL, esker_text("to"), 0, &old, &error));
    CHECK(old == 3);
    esker_txn_free(snapshot);
    esker_keyspace_free(ks);
}

static void walks(esker_db *db) {
    esker_keyspace *ks;
    esker_iter *iter;
    esker_cursor *cursor;
    esker_slice key, value;
    uint8_t room[64];
    esker_buffer buffer = {room, sizeof room}, tiny = {room, 9};
    size_t count, bytes, total = 0;
    char name[8];
    int i;

    OK(esker_keyspace_open(db, "walks", &ks, &error));
    for (i = 0; i < 100; ++i) {
        sprintf(name, "%03d", i);
        OK(esker_put(ks, NULL, esker_text(name), esker_text(name + 1), &error));
    }
    OK(esker_iter_new(ks, NULL, esker_range_of(esker_text("010"), esker_text("020")), 0, &iter, &error));
    for (i = 10; i < 20; ++i) {
        sprintf(name, "%03d", i);
        OK(esker_iter_next(iter, &key, &value, &error));
        IS(key, name);
        IS(value, name + 1);
    }
    EXPECT(ESKER_NOT_FOUND, esker_iter_next(iter, &key, NULL, &error));
    esker_iter_free(iter);

    OK(esker_iter_new(ks, NULL, esker_range_of(esker_none(), esker_none()), ESKER_ITER_REVERSE | ESKER_ITER_KEYS, &iter, &error));
    OK(esker_iter_next(iter, &key, &value, &error));
    IS(key, "099");
    CHECK(value.len == 0);
    esker_iter_free(iter);
    EXPECT(ESKER_INVALID, esker_iter_new(ks, NULL, esker_range_of(esker_none(), esker_none()), 64, &iter, &error));

    OK(esker_iter_prefix(ks, NULL, esker_text("0"), 0, &iter, &error));
    EXPECT(ESKER_BUFFER_TOO_SMALL, esker_iter_fill(iter, tiny, &count, &bytes, &error));
    CHECK(bytes == 13);
    for (;;) {
        OK(esker_iter_fill(iter, buffer, &count, &bytes, &error));
        if (count == 0) break;
        CHECK(bytes == 13 * count && bytes <= sizeof room);
        sprintf(name, "%03d", (int)total);
        CHECK(room[0] == 3 && room[4] == 2 && memcmp(room + 8, name, 3) == 0);
        total += count;
    }
    CHECK(total == 100);
    esker_iter_free(iter);

    OK(esker_iter_new(ks, NULL, esker_range_of(esker_none(), esker_none()), 0, &iter, &error));
    esker_iter_set_limit(iter, 3);
    EXPECT(ESKER_BUFFER_TOO_SMALL, esker_iter_fill(iter, tiny, &count, &bytes, &error));
    OK(esker_iter_fill(iter, buffer, &count, &bytes, &error));
    CHECK(count == 3 && bytes == 39 && memcmp(room + 34, "002", 3) == 0);
    OK(esker_iter_fill(iter, buffer, &count, &bytes, &error));
    CHECK(count == 0);
    esker_iter_free(iter);
    OK(esker_iter_new(ks, NULL, esker_range_of(esker_none(), esker_none()), ESKER_ITER_REVERSE, &iter, &error));
    esker_iter_set_limit(iter, 1);
    OK(esker_iter_next(iter, &key, NULL, &error));
    IS(key, "099");
    EXPECT(ESKER_NOT_FOUND, esker_iter_next(iter, &key, NULL, &error));
    esker_iter_free(iter);
    esker_iter_set_limit(NULL, 1);

    OK(esker_cursor_new(ks, NULL, &cursor, &error));
    EXPECT(ESKER_NOT_FOUND, esker_cursor_entry(cursor, &key, &value, &error));
    OK(esker_cursor_seek(cursor, esker_text("0505"), &error));
    OK(esker_cursor_entry(cursor, &key, &value, &error));
    IS(key, "051");
    IS(value, "51");
    OK(esker_cursor_prev(cursor, &error));
    OK(esker_cursor_entry(cursor, &key, NULL, &error));
    IS(key, "050");
    OK(esker_cursor_seek_before(cursor, esker_text("050"), &error));
    OK(esker_cursor_next(cursor, &error));
    OK(esker_cursor_last(cursor, &error));
    EXPECT(ESKER_NOT_FOUND, esker_cursor_next(cursor, &error));
    OK(esker_cursor_first(cursor, &error));
    OK(esker_cursor_entry(cursor, &key, NULL, &error));
    IS(key, "000");
    EXPECT(ESKER_NOT_FOUND, esker_cursor_seek(cursor, esker_text("z"), &error));
    esker_cursor_free(cursor);

    OK(esker_delete_range(ks, NULL, esker_range_of(esker_text("010"), esker_text("090")), &error));
    OK(esker_iter_new(ks, NULL, esker_range_of(esker_none(), esker_none()), 0, &iter, &error));
    for (total = 0; esker_iter_next(iter, NULL, NULL, NULL) == ESKER_OK; ++total) {}
    CHECK(total == 20);
    esker_iter_free(iter);
    esker_keyspace_free(ks);
}

static void merges_and_feed(esker_db *db, int *merges) {
    esker_keyspace *sums, *words;
    esker_txn *batch;
    esker_feed *feed;
    esker_change change;
    uint64_t start, seqno, before;
    unsigned changes, kinds = 0, operands = 0;
    char word[300];

    OK(esker_keyspace_open(db, "sums", &sums, &error));
    OK(esker_keyspace_open(db, "words", &words, &error));
    OK(esker_keyspace_set_merge_operator(sums, "add-i64", &error));
    OK(esker_keyspace_set_merge_operator(words, "longest", &error));
    EXPECT(ESKER_MERGE, esker_keyspace_set_merge_operator(sums, "none such", &error));
    OK(esker_keyspace_set_default_ttl(sums, 3600000, &error));
    esker_newest_commit(db, &start);
    before = (uint64_t)time(NULL) * 1000;
    OK(esker_merge(sums, NULL, esker_text("n"), esker_bytes("\1\0\0\0\0\0\0\0", 8), &error));
    OK(esker_keyspace_set_default_ttl(sums, 0, &error));
    OK(esker_begin(db, ESKER_TXN_WRITE_ONLY, &batch, &error));
    OK(esker_merge(words, batch, esker_text("w"), esker_text("ann"), &error));
    OK(esker_merge(words, batch, esker_text("w"), esker_text("anna"), &error));
    OK(esker_put(sums, batch, esker_text("p"), esker_text("12345678"), &error));
    OK(esker_delete_range(sums, batch, esker_range_of(esker_text("q"), esker_none()), &error));
    OK(esker_commit(batch, ESKER_DURABILITY_SYNC, &seqno, &error));
    esker_txn_free(batch);

    OK(esker_feed_after(db, start, &feed, &error));
    OK(esker_feed_next(feed, 5000, NULL, &error));
    OK(esker_feed_change(feed, &change, &error));
    CHECK(change.kind == ESKER_CHANGE_MERGE && change.keyspace == esker_keyspace_id(sums) && change.value.len == 8);
    IS(change.key, "n");
    CHECK(change.lifetime == 3600000 && change.expires_at == 0);
    CHECK(change.merged_at >= before && change.merged_at <= (uint64_t)time(NULL) * 1000 + 2000);
    EXPECT(ESKER_NOT_FOUND, esker_feed_change(feed, &change, &error));
    OK(esker_feed_next(feed, 5000, NULL, &error));
    OK(esker_feed_change(feed, &change, &error));
    CHECK(change.kind == ESKER_CHANGE_OTHER && change.merged_at == 0 && change.lifetime == 0);
    OK(esker_feed_next(feed, 5000, &start, &error));
    CHECK(start == seqno);
    /* In any order that makes the same commit. */
    for (changes = 0; esker_feed_change(feed, &change, NULL) == ESKER_OK; ++changes) {
        kinds |= 1u << change.kind;
        if (change.kind == ESKER_CHANGE_DELETE_RANGE) {
            IS(change.key, "q");
            CHECK(change.value.data == NULL);
        } else if (change.kind == ESKER_CHANGE_PUT) {
            IS(change.value, "12345678");
            CHECK(change.expires_at == 0 && change.merged_at == 0 && change.lifetime == 0);
        } else {
            CHECK(change.lifetime == 0 && change.merged_at >= before);
            if (operands++ == 0) IS(change.value, "ann");
            else IS(change.value, "anna");
        }
    }
    CHECK(changes == 4 && operands == 2 && kinds == (1u << ESKER_CHANGE_DELETE_RANGE | 1u << ESKER_CHANGE_PUT | 1u << ESKER_CHANGE_MERGE));
    EXPECT(ESKER_NOT_FOUND, esker_feed_change(feed, &change, &error));
    EXPECT(ESKER_NOT_FOUND, esker_feed_next(feed, 0, NULL, &error));
    EXPECT(ESKER_NOT_FOUND, esker_feed_change(feed, &change, &error));
    esker_feed_free(feed);
    EXPECT(ESKER_FEED_AHEAD, esker_feed_after(db, seqno + 1000, &feed, &error));

    memset(word, 'w', sizeof word);
    word[sizeof word - 1] = 0;
    OK(esker_merge(words, NULL, esker_text("w"), esker_text(word), &error));
    OK(esker_merge(words, NULL, esker_text("w"), esker_text("bob"), &error));
    expect_value(words, NULL, "w", word);
    CHECK(*merges > 0);
    OK(esker_put(words, NULL, esker_text("bad"), esker_text(word), &error));
    esker_keyspace_free(sums);
    esker_keyspace_free(words);
}

/* An error between entries comes after those before it, and only once. */
static void errors_in_walks(esker_db *db) {
    esker_keyspace *sums;
    esker_iter *iter;
    esker_buffer buffer;
    uint8_t room[200];
    size_t count, bytes;
    uint32_t flags;

    OK(esker_keyspace_open(db, "sums", &sums, &error));
    OK(esker_delete_range(sums, NULL, esker_range_of(esker_none(), esker_none()), &error));
    OK(esker_put(sums, NULL, esker_text("a"), esker_text("12345678"), &error));
    OK(esker_put(sums, NULL, esker_text("b"), esker_text("no number"), &error));
    OK(esker_merge(sums, NULL, esker_text("b"), esker_text("12345678"), &error));
    OK(esker_put(sums, NULL, esker_text("c"), esker_text("12345678"), &error));
    buffer.data = room, buffer.len = sizeof room;
    for (flags = 0; flags <= ESKER_ITER_REVERSE; ++flags) {
        OK(esker_iter_new(sums, NULL, esker_range_of(esker_none(), esker_none()), flags, &iter, &error));
        OK(esker_iter_fill(iter, buffer, &count, &bytes, &error));
        CHECK(count == 1 && room[8] == (flags == 0 ? 'a' : 'c'));
        EXPECT(ESKER_MERGE, esker_iter_fill(iter, buffer, &count, &bytes, &error));
        OK(esker_iter_fill(iter, buffer, &count, &bytes, &error));
        CHECK(count == 1 && room[8] == (flags == 0 ? 'c' : 'a'));
        OK(esker_iter_fill(iter, buffer, &count, &bytes, &error));
        CHECK(count == 0);
        esker_iter_free(iter);
    }
    OK(esker_delete(sums, NULL, esker_text("b"), &error));
    esker_keyspace_free(sums);
}

static esker_field field_of(uint32_t kind, esker_slice bytes, int64_t integer, double number) {
    esker_field field;
    field.kind = kind, field.bytes = bytes, field.integer = integer, field.number = number;
    return field;
}

static void tuples(void) {
    esker_tuple *tuple = esker_tuple_new(), *back, *inner;
    esker_value key, inner_key;
    esker_field field;

    inner = esker_tuple_new();
    OK(esker_tuple_add(inner, field_of(ESKER_FIELD_NULL, esker_none(), 0, 0), &error));
    OK(esker_tuple_pack(inner, &inner_key, &error));
    esker_tuple_free(inner);
    OK(esker_tuple_add(tuple, field_of(ESKER_FIELD_TEXT, esker_text("ann"), 0, 0), &error));
    OK(esker_tuple_add(tuple, field_of(ESKER_FIELD_INT, esker_none(), -7, 0), &error));
    OK(esker_tuple_add(tuple, field_of(ESKER_FIELD_UINT, esker_none(), -1, 0), &error));
    OK(esker_tuple_add(tuple, field_of(ESKER_FIELD_DOUBLE, esker_none(), 0, 0.5), &error));
    OK(esker_tuple_add(tuple, field_of(ESKER_FIELD_BOOL, esker_none(), 1, 0), &error));
    OK(esker_tuple_add(tuple, field_of(ESKER_FIELD_TUPLE, esker_bytes(inner_key.data, inner_key.len), 0, 0), &error));
    EXPECT(ESKER_INVALID, esker_tuple_add(tuple, field_of(99, esker_none(), 0, 0), &error));
    EXPECT(ESKER_INVALID, esker_tuple_add(tuple, field_of(ESKER_FIELD_TEXT, esker_bytes("\xff", 1), 0, 0), &error));
    EXPECT(ESKER_INVALID, esker_tuple_add(tuple, field_of(ESKER_FIELD_UUID, esker_text("short"), 0, 0), &error));
    esker_value_free(&inner_key);
    OK(esker_tuple_pack(tuple, &key, &error));
    CHECK(memcmp(key.data, "\2ann\0\23\xf8\34", 8) == 0);
    esker_tuple_free(tuple);

    OK(esker_tuple_unpack(esker_bytes(key.data, key.len), &back, &error));
    CHECK(esker_tuple_size(back) == 6);
    OK(esker_tuple_get(back, 0, &field, &error));
    CHECK(field.kind == ESKER_FIELD_TEXT);
    IS(field.bytes, "ann");
    OK(esker_tuple_get(back, 1, &field, &error));
    CHECK(field.kind == ESKER_FIELD_INT && field.integer == -7);
    OK(esker_tuple_get(back, 2, &field, &error));
    CHECK(field.kind == ESKER_FIELD_UINT && field.integer == -1);
    OK(esker_tuple_get(back, 3, &field, &error));
    CHECK(field.kind == ESKER_FIELD_DOUBLE && field.number == 0.5);
    OK(esker_tuple_get(back, 5, &field, &error));
    CHECK(field.kind == ESKER_FIELD_TUPLE);
    EXPECT(ESKER_NOT_FOUND, esker_tuple_get(back, 6, &field, &error));
    esker_tuple_free(back);
    esker_value_free(&key);
    EXPECT(ESKER_INVALID, esker_tuple_unpack(esker_text("\x7f"), &back, &error));

    /* A signalling NaN of 32 bits is no number that a processor converts unchanged. */
    OK(esker_tuple_unpack(esker_bytes("\x20\xff\xa0\0\1", 5), &back, &error));
    OK(esker_tuple_get(back, 0, &field, &error));
    CHECK(field.kind == ESKER_FIELD_FLOAT && field.number != field.number);
    tuple = esker_tuple_new();
    OK(esker_tuple_add(tuple, field, &error));
    OK(esker_tuple_pack(tuple, &key, &error));
    CHECK(key.len == 5 && memcmp(key.data, "\x20\xff\xa0\0\1", 5) == 0);
    esker_tuple_free(back), esker_tuple_free(tuple), esker_value_free(&key);
}

static void mistakes(esker_db *db, const char *path) {
    esker_db *other = NULL;
    esker_keyspace *ks = NULL;
    esker_error *error = NULL;
    esker_value value;
    char *long_key = calloc(1, ESKER_KEY_BYTES_MAX + 1);

    CHECK(esker_open(path, NULL, &other, &error) == ESKER_LOCKED && other == NULL);
    CHECK(esker_error_status(error) == ESKER_LOCKED && esker_error_file(error) != NULL);
    CHECK(!esker_error_offset(error, NULL) && esker_error_errno(error) == 0);
    esker_error_free(error);
    EXPECT(ESKER_INVALID, esker_open(NULL, NULL, &other, &error));
    EXPECT(ESKER_INVALID, esker_open("x", NULL, NULL, &error));
    EXPECT(ESKER_KEYSPACE_NOT_FOUND, esker_keyspace_find(db, "none such", &ks, &error));
    EXPECT(ESKER_INVALID, esker_keyspace_open(db, "\xff", &ks, &error));
    EXPECT(ESKER_INVALID, esker_get(NULL, NULL, esker_text("k"), &value, &error));
    CHECK(value.data == NULL);
    OK(esker_keyspace_open(db, "mistakes", &ks, &error));
    EXPECT(ESKER_TOO_LONG, esker_put(ks, NULL, esker_bytes(long_key, ESKER_KEY_BYTES_MAX + 1), esker_text("v"), &error));
    EXPECT(ESKER_INVALID, esker_get(ks, NULL, esker_text("k"), NULL, &error));
    EXPECT(ESKER_INVALID, esker_sync(NULL, &error));
    EXPECT(ESKER_MERGE, esker_merge(ks, NULL, esker_text("k"), esker_text("o"), &error));
    OK(esker_keyspace_set_default_ttl(ks, 1000, &error));
    OK(esker_keyspace_set_bytes_max(ks, 1 << 20, &error));
    OK(esker_keyspace_rename(db, "mistakes", "amends", &error));
    EXPECT(ESKER_KEYSPACE_EXISTS, esker_keyspace_rename(db, "amends", "first", &error));
    OK(esker_keyspace_drop(db, "amends", &error));
    EXPECT(ESKER_KEYSPACE_NOT_FOUND, esker_put(ks, NULL, esker_text("k"), esker_text("v"), &error));
    esker_keyspace_free(ks);
    esker_keyspace_free(NULL), esker_txn_free(NULL), esker_iter_free(NULL), esker_value_free(NULL);
    esker_error_free(NULL), esker_options_free(NULL), esker_feed_free(NULL), esker_cursor_free(NULL);
    CHECK(strcmp(esker_status_name(ESKER_NO_SPACE), "no space") == 0);
    CHECK(strcmp(esker_status_name(-5), "unknown") == 0 && strcmp(esker_error_text(NULL), "") == 0);
    free(long_key);
}

int main(int argc, char **argv) {
    esker_db *db;
    esker_keyspace *ks;
    esker_options *options;
    char copy[4096];
    int merges = 0, names = 0;
    double items = 0;

    CHECK(argc == 2 && strlen(esker_version()) >= 5);
    db = open_at(argv[1], &merges);
    puts_and_gets(db);
    transactions(db);
    walks(db);
    merges_and_feed(db, &merges);
    errors_in_walks(db);
    tuples();
    mistakes(db, argv[1]);
    OK(esker_keyspace_names(db, count_names, &names, &error));
    CHECK(names == 6);
    OK(esker_stats(db, find_items, &items, &error));
    CHECK(items > 20);
    OK(esker_sync(db, &error));
    OK(esker_compact(db, &error));
    OK(esker_check(db, &error));
    sprintf(copy, "%s-copy", argv[1]);
    OK(esker_checkpoint(db, copy, &error));
    EXPECT(ESKER_EXISTS, esker_checkpoint(db, copy, &error));
    OK(esker_keyspace_find(db, "first", &ks, &error));
    OK(esker_close(db, &error));
    EXPECT(ESKER_CLOSED, esker_put(ks, NULL, esker_text("k"), esker_text("v"), &error));
    esker_keyspace_free(ks);
    OK(esker_close(NULL, &error));

    /* A copy with an operator that this opening does not know, then read only. */
    EXPECT(ESKER_MERGE, esker_open(copy, NULL, &db, &error));
    options = esker_options_new();
    esker_options_set_read_only(options, true);
    OK(esker_options_add_merge_operator(options, "longest", longest, &merges, &error));
    OK(esker_open(copy, options, &db, &error));
    OK(esker_keyspace_find(db, "first", &ks, &error));
    expect_value(ks, NULL, "a", "1");
    EXPECT(ESKER_READ_ONLY, esker_put(ks, NULL, esker_text("a"), esker_text("2"), &error));
    esker_keyspace_free(ks);
    OK(esker_close(db, &error));
    esker_options_set_create_if_missing(options, false);
    esker_options_set_read_only(options, false);
    EXPECT(ESKER_NO_DATABASE, esker_open("/nowhere/at/all", options, &db, &error));
    esker_options_free(options);
    OK(esker_open_in_memory(NULL, &db, &error));
    OK(esker_close(db, &error));
    puts("ok");
    return 0;
}
