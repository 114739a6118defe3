/* A program that writes and ends without closing its database, in the way that its argument says; and one that checks what is there. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <forebay.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEYS = 5000 };

static char *error = NULL;
/* A place where a sanitizer sees that the handle is not lost. */
static leveldb_t *db, *closed;

static leveldb_t *open_one(const char *path) {
    leveldb_options_t *options = leveldb_options_create();
    leveldb_t *opened;
    leveldb_options_set_create_if_missing(options, 1);
    forebay_options_set_memory_bytes(options, 64 << 20);
    opened = leveldb_open(options, path, &error);
    CHECK_NO_ERROR(error);
    leveldb_options_destroy(options);
    return opened;
}

static void write_keys(void) {
    char key[16];
    int at;
    for (at = 0; at < KEYS; at++) {
        snprintf(key, sizeof key, "%d", at);
        leveldb_put(db, NULL, key, strlen(key), key, strlen(key), &error);
        CHECK_NO_ERROR(error);
    }
}

static void expect_keys(void) {
    leveldb_iterator_t *iterator = leveldb_create_iterator(db, NULL);
    int count = 0;
    for (leveldb_iter_seek_to_first(iterator); leveldb_iter_valid(iterator); leveldb_iter_next(iterator)) {
        count++;
    }
    leveldb_iter_get_error(iterator, &error);
    CHECK_NO_ERROR(error);
    leveldb_iter_destroy(iterator);
    fprintf(stderr, "%d keys\n", count);
    CHECK(count == KEYS);
}

static void *exits(void *nothing) {
    (void)nothing;
    exit(0);
}

static void found(void *state, const char *value, size_t length) {
    (void)state, (void)value, (void)length;
    exit(0);
}

/* Writes an empty batch with sync. */
static void sync_all(void) {
    leveldb_writeoptions_t *synced = leveldb_writeoptions_create();
    leveldb_writebatch_t *empty = leveldb_writebatch_create();
    leveldb_writeoptions_set_sync(synced, 1);
    leveldb_write(db, synced, empty, &error);
    CHECK_NO_ERROR(error);
    leveldb_writebatch_destroy(empty);
    leveldb_writeoptions_destroy(synced);
}

/* Registered before the library's own handler, so it runs after that one. */
static void closes(void) {
    leveldb_put(db, NULL, "0", 1, "again", 5, &error);
    CHECK_NO_ERROR(error);
    leveldb_close(db);
}

int main(int argc, char **argv) {
    const char *how;
    char other[4096];
    pthread_t thread;
    CHECK(argc == 3);
    how = argv[2];
    start(how);
    if (strcmp(how, "closes") == 0) {
        CHECK(atexit(closes) == 0);
    }
    db = open_one(argv[1]);
    if (strcmp(how, "check") == 0) {
        expect_keys();
        leveldb_close(db);
        leveldb_destroy_db(NULL, argv[1], &error);
        CHECK_NO_ERROR(error);
        return 0;
    }
    snprintf(other, sizeof other, "%s-closed", argv[1]);
    closed = open_one(other);
    leveldb_close(closed);
    leveldb_destroy_db(NULL, other, &error);
    CHECK_NO_ERROR(error);
    write_keys();
    if (strcmp(how, "thread") == 0) {
        CHECK(pthread_create(&thread, NULL, exits, NULL) == 0);
        pthread_join(thread, NULL);
    } else if (strcmp(how, "found") == 0) {
        forebay_get(db, NULL, "0", 1, found, NULL, &error);
    } else if (strcmp(how, "synced") == 0) {
        sync_all();
        _exit(0);
    } else if (strcmp(how, "child") == 0) {
        int status = -1;
        const pid_t child = fork();
        if (child == 0) {
            exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    return 0;
}
