/* What the C programs of the tests share: checks that say where they failed. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "esker.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Runs a call whose last argument is `&error`, and checks its status. */
#define EXPECT(status, call)                                                                       \
    do {                                                                                           \
        esker_error *error = NULL;                                                                 \
        int is = (int)(call);                                                                      \
        if (is != (int)(status)) {                                                                 \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call,                      \
                    esker_status_name(is), esker_error_text(error));                               \
            exit(1);                                                                               \
        }                                                                                          \
        CHECK((error != NULL) == (is > ESKER_BUFFER_TOO_SMALL));                        \
        esker_error_free(error);                                                                   \
    } while (0)

#define OK(call) EXPECT(ESKER_OK, call)

/* Checks that bytes are a text. */
#define IS(bytes, text) CHECK((bytes).len == strlen(text) && memcmp((bytes).data, text, (bytes).len) == 0)

static inline void expect_value(const esker_keyspace *ks, const esker_txn *txn, const char *key,
                                const char *value) {
    esker_value found;
    if (value == NULL) {
        EXPECT(ESKER_NOT_FOUND, esker_get(ks, txn, esker_text(key), &found, &error));
        CHECK(found.data == NULL);
        return;
    }
    OK(esker_get(ks, txn, esker_text(key), &found, &error));
    IS(found, value);
    esker_value_free(&found);
    CHECK(found.data == NULL);
}

#endif
