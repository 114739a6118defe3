/* A program that forks while databases are open: children use what is theirs, and parents lose nothing. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <forebay.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 20, PATIENCE_S = 120 };

static char *error = NULL;
static char name[4096], other_name[4096];
static leveldb_writeoptions_t *synced;

static leveldb_t *open_one(const char *path) {
    leveldb_options_t *options = leveldb_options_create();
    leveldb_t *db;
    leveldb_options_set_create_if_missing(options, 1);
    forebay_options_set_memory_bytes(options, 64 << 20);
    db = leveldb_open(options, path, &error);
    leveldb_options_destroy(options);
    return db;
}

static leveldb_t *open_fine(const char *path) {
    leveldb_t *db = open_one(path);
    CHECK_NO_ERROR(error);
    return db;
}

static void put(leveldb_t *db, const char *key, char **failed) {
    leveldb_put(db, synced, key, strlen(key), "value", 5, failed);
}

static int has(leveldb_t *db, const char *key) {
    size_t length;
    char *value = leveldb_get(db, NULL, key, strlen(key), &length, &error);
    CHECK_NO_ERROR(error);
    leveldb_free(value);
    return value != NULL;
}

/* Forks. A child that hangs is killed, and so fails. */
static pid_t begin(void) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(PATIENCE_S);
    }
    return child;
}

static void end(pid_t child) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#define CHECK_REFUSED()                                                                                      \
    do {                                                                                                     \
        CHECK(forebay_error_kind() == FOREBAY_ERROR_INVALID);                                                \
        CHECK_ERROR(error, "Invalid argument: the database was opened before a fork");                       \
    } while (0)

static void found(void *state, const char *value, size_t length) {
    (void)state, (void)value, (void)length;
    CHECK(0);
}

/* All functions, on a database that the parent has opened. */
static void everything(leveldb_t *db, leveldb_readoptions_t *at, leveldb_iterator_t *iterator,
                       leveldb_writebatch_t *batch, forebay_requests_t *requests) {
    const char *key = "key", *limit = "l";
    const size_t length = 3, limit_length = 1;
    size_t copied = 9;
    char *value = NULL;
    uint64_t size = 9;
    leveldb_iterator_t *refused;
    put(db, "child", &error);
    CHECK_REFUSED();
    leveldb_delete(db, NULL, key, 3, &error);
    CHECK_REFUSED();
    leveldb_write(db, synced, batch, &error);
    CHECK_REFUSED();
    CHECK(forebay_requests_create(db, "r/", 2, 1, &error) == NULL);
    CHECK_REFUSED();
    CHECK(forebay_requests_write(requests, NULL, key, 3, 1, batch, NULL, 0, NULL, NULL, &error) == NULL);
    CHECK_REFUSED();
    forebay_merge(db, NULL, key, 3, "1", 1, &error);
    CHECK_REFUSED();
    forebay_delete_range(db, NULL, key, 3, limit, 1, &error);
    CHECK_REFUSED();
    CHECK(leveldb_get(db, NULL, key, 3, &copied, &error) == NULL && copied == 0);
    CHECK_REFUSED();
    CHECK(leveldb_get(db, at, key, 3, &copied, &error) == NULL);
    CHECK_REFUSED();
    CHECK(forebay_get(db, NULL, key, 3, found, NULL, &error) == 0);
    CHECK_REFUSED();
    forebay_multi_get(db, NULL, 1, &key, &length, &value, &copied, &error);
    CHECK_REFUSED();
    forebay_flush(db, &error);
    CHECK_REFUSED();
    forebay_compact_range(db, NULL, 0, NULL, 0, &error);
    CHECK_REFUSED();
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    CHECK(leveldb_create_snapshot(db) == NULL);
    CHECK(leveldb_property_value(db, "leveldb.stats") == NULL);
    leveldb_approximate_sizes(db, 1, &key, &length, &limit, &limit_length, &size);
    CHECK(size == 0);
    refused = leveldb_create_iterator(db, NULL);
    leveldb_iter_get_error(refused, &error);
    CHECK_REFUSED();
    leveldb_iter_destroy(refused);
    CHECK(!leveldb_iter_valid(iterator) && leveldb_iter_key(iterator, &copied) == NULL);
    leveldb_iter_get_error(iterator, &error);
    CHECK_REFUSED();
    leveldb_iter_next(iterator);
    leveldb_iter_seek_to_first(iterator);
    leveldb_iter_seek(iterator, key, 3);
    forebay_iter_seek_for_prev(iterator, key, 3);
    CHECK(!leveldb_iter_valid(iterator));
    leveldb_iter_get_error(iterator, &error);
    CHECK_REFUSED();
}

static void children_are_refused(void) {
    leveldb_t *db = open_fine(name), *own;
    leveldb_readoptions_t *at = leveldb_readoptions_create();
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    leveldb_iterator_t *iterator;
    const leveldb_snapshot_t *snapshot;
    forebay_requests_t *requests;
    pid_t child;
    start("children are refused");
    put(db, "key", &error);
    CHECK_NO_ERROR(error);
    iterator = leveldb_create_iterator(db, NULL);
    leveldb_iter_seek_to_first(iterator);
    CHECK(leveldb_iter_valid(iterator));
    snapshot = leveldb_create_snapshot(db);
    leveldb_readoptions_set_snapshot(at, snapshot);
    requests = forebay_requests_create(db, "r/", 2, FOREBAY_REQUESTS_LIFETIME_MS, &error);
    CHECK_NO_ERROR(error);
    leveldb_writebatch_put(batch, "child", 5, "", 0);
    child = begin();
    if (child == 0) {
        everything(db, at, iterator, batch, requests);
        /* The database is the parent's. */
        CHECK(open_one(name) == NULL && forebay_error_kind() == FOREBAY_ERROR_BUSY);
        CHECK_ERROR(error, "open already");
        /* What a child opens is its own, and its own children also treat it as such. */
        own = open_fine(other_name);
        put(own, "child", &error);
        CHECK_NO_ERROR(error);
        leveldb_get(own, at, "child", 5, &(size_t){0}, &error);
        CHECK_REFUSED();
        child = begin();
        if (child == 0) {
            put(own, "grandchild", &error);
            CHECK_REFUSED();
            leveldb_close(own);
            exit(0);
        }
        end(child);
        CHECK(has(own, "child") && !has(own, "grandchild"));
        leveldb_close(own);
        leveldb_iter_destroy(iterator);
        leveldb_readoptions_destroy(at);
        leveldb_release_snapshot(db, snapshot);
        leveldb_writebatch_destroy(batch);
        forebay_requests_destroy(requests);
        forebay_close(db, &error);
        CHECK_NO_ERROR(error);
        exit(0);
    }
    put(db, "parent", &error);
    CHECK_NO_ERROR(error);
    end(child);
    /* A child that ends without calling anything. */
    child = begin();
    if (child == 0) {
        exit(0);
    }
    end(child);
    put(db, "later", &error);
    CHECK_NO_ERROR(error);
    leveldb_iter_next(iterator);
    leveldb_iter_get_error(iterator, &error);
    CHECK_NO_ERROR(error);
    leveldb_iter_destroy(iterator);
    leveldb_readoptions_destroy(at);
    leveldb_release_snapshot(db, snapshot);
    leveldb_writebatch_destroy(batch);
    forebay_requests_destroy(requests);
    forebay_close(db, &error);
    CHECK_NO_ERROR(error);
    db = open_fine(name);
    CHECK(has(db, "key") && has(db, "parent") && has(db, "later") && !has(db, "child"));
    leveldb_close(db);
    own = open_fine(other_name);
    CHECK(has(own, "child"));
    leveldb_close(own);
}

/* A child that lives does not keep its parent's database, and opens it when the parent has closed it. */
static void a_child_keeps_no_lock(void) {
    leveldb_t *db = open_fine(name);
    int closed[2];
    char signal;
    pid_t child;
    start("a child keeps no lock");
    CHECK(pipe(closed) == 0);
    child = begin();
    if (child == 0) {
        CHECK(read(closed[0], &signal, 1) == 1);
        leveldb_close(db);
        db = open_fine(name);
        CHECK(has(db, "after"));
        put(db, "of the child", &error);
        CHECK_NO_ERROR(error);
        leveldb_close(db);
        exit(0);
    }
    leveldb_close(db);
    db = open_fine(name);
    put(db, "after", &error);
    CHECK_NO_ERROR(error);
    leveldb_close(db);
    CHECK(write(closed[1], "x", 1) == 1);
    end(child);
    close(closed[0]);
    close(closed[1]);
    db = open_fine(name);
    CHECK(has(db, "after") && has(db, "of the child"));
    leveldb_close(db);
}

static _Atomic int is_over = 0;

static void *write_on(void *db) {
    char key[32], *failed = NULL;
    int *written = malloc(sizeof *written);
    CHECK(written != NULL);
    for (*written = 0; !is_over; ++*written) {
        snprintf(key, sizeof key, "written %d", *written);
        put(db, key, &failed);
        CHECK_NO_ERROR(failed);
    }
    return written;
}

/* Forks at any moment of other threads' work. */
static void other_threads_write(void) {
    leveldb_t *db = open_fine(name);
    char key[32];
    pthread_t writer;
    void *written;
    int at;
    start("other threads write");
    CHECK(pthread_create(&writer, NULL, write_on, db) == 0);
    for (at = 0; at < FORKS; at++) {
        const pid_t child = begin();
        if (child == 0) {
            put(db, "child", &error);
            CHECK_REFUSED();
            if (at % 2 == 0) {
                leveldb_close(db);
            }
            exit(0);
        }
        snprintf(key, sizeof key, "round %d", at);
        put(db, key, &error);
        CHECK_NO_ERROR(error);
        end(child);
    }
    is_over = 1;
    CHECK(pthread_join(writer, &written) == 0);
    leveldb_close(db);
    db = open_fine(name);
    CHECK(!has(db, "child"));
    for (at = 0; at < FORKS; at++) {
        snprintf(key, sizeof key, "round %d", at);
        CHECK(has(db, key));
    }
    for (at = 0; at < *(int *)written; at++) {
        snprintf(key, sizeof key, "written %d", at);
        CHECK(has(db, key));
    }
    free(written);
    leveldb_close(db);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    snprintf(name, sizeof name, "%s", argv[1]);
    snprintf(other_name, sizeof other_name, "%s-of-a-child", argv[1]);
    synced = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(synced, 1);
    children_are_refused();
    a_child_keeps_no_lock();
    other_threads_write();
    leveldb_destroy_db(NULL, name, &error);
    CHECK_NO_ERROR(error);
    leveldb_destroy_db(NULL, other_name, &error);
    CHECK_NO_ERROR(error);
    leveldb_writeoptions_destroy(synced);
    puts("passed");
    return 0;
}
