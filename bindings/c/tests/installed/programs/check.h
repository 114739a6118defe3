/* What the test programs of C share: a failed check says where it is, and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *phase = "";

static inline void start(const char *name) {
    phase = name;
    fprintf(stderr, "phase %s\n", name);
}

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: phase %s: not true: %s\n", __FILE__, __LINE__, phase, #condition);       \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#define CHECK_NO_ERROR(error)                                                                                \
    do {                                                                                                     \
        if ((error) != NULL) {                                                                               \
            fprintf(stderr, "%s:%d: phase %s: %s\n", __FILE__, __LINE__, phase, error);                      \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* Checks that there is an error whose text contains `part`. The text is freed. */
#define CHECK_ERROR(error, part)                                                                             \
    do {                                                                                                     \
        CHECK((error) != NULL);                                                                              \
        if (strstr(error, part) == NULL) {                                                                   \
            fprintf(stderr, "%s:%d: phase %s: '%s' is not in: %s\n", __FILE__, __LINE__, phase, part, error); \
            exit(1);                                                                                         \
        }                                                                                                    \
        leveldb_free(error);                                                                                 \
        error = NULL;                                                                                        \
    } while (0)

#endif
