/* What Forebay has and LevelDB does not, and what happens when a program passes nonsense. */
#include "check.h"
#include <forebay.h>
#include <stdint.h>

static char *error = NULL;
static const char *name = "extensions-of-c";

static leveldb_t *open_with(leveldb_options_t *options) {
    leveldb_t *db;
    leveldb_options_set_create_if_missing(options, 1);
    db = leveldb_open(options, name, &error);
    leveldb_options_destroy(options);
    return db;
}

static void put(leveldb_t *db, const char *key, const char *value) {
    leveldb_put(db, NULL, key, strlen(key), value, strlen(value), &error);
    CHECK_NO_ERROR(error);
}

static void keep(void *state, const char *value, size_t length) {
    CHECK(length < 16);
    memcpy(state, value, length);
    ((char *)state)[length] = 0;
}

static int get(leveldb_t *db, const char *key, char *value) {
    uint8_t is_there = forebay_get(db, NULL, key, strlen(key), keep, value, &error);
    CHECK_NO_ERROR(error);
    return is_there;
}

static void expect_key(const leveldb_iterator_t *iterator, const char *expected) {
    size_t length = 99;
    const char *key = leveldb_iter_key(iterator, &length);
    if (expected == NULL) {
        CHECK(key == NULL && length == 0 && !leveldb_iter_valid(iterator));
    } else {
        CHECK(length == strlen(expected) && memcmp(key, expected, length) == 0);
    }
}

static const char *own_order(void *state) {
    (void)state;
    return "order of the test";
}

static const char *reverse(void *state) {
    (void)state;
    return "rocksdb.ReverseBytewiseComparator";
}

static void count(void *state, const char *key, size_t keylen, const char *val, size_t vallen) {
    (void)key, (void)keylen, (void)val, (void)vallen;
    *(int *)state += 1;
}

static void count_deleted(void *state, const char *key, size_t keylen) {
    (void)key, (void)keylen;
    *(int *)state += 1;
}

static void nonsense(void) {
    size_t length = 1;
    uint64_t size = 1;
    const char *null_key = NULL;
    char *no_value;
    leveldb_iterator_t *iterator;
    start("null pointers");
    CHECK(leveldb_open(NULL, NULL, &error) == NULL);
    CHECK_ERROR(error, "Invalid argument: the name of the database is NULL");
    CHECK(forebay_error_kind() == FOREBAY_ERROR_INVALID);
    CHECK(leveldb_open(NULL, NULL, NULL) == NULL);
    leveldb_put(NULL, NULL, "a", 1, "b", 1, &error);
    CHECK_ERROR(error, "Invalid argument: the leveldb_t is NULL");
    leveldb_delete(NULL, NULL, "a", 1, &error);
    CHECK_ERROR(error, "leveldb_t is NULL");
    leveldb_write(NULL, NULL, NULL, &error);
    CHECK_ERROR(error, "NULL");
    CHECK(leveldb_get(NULL, NULL, "a", 1, &length, &error) == NULL && length == 0);
    CHECK_ERROR(error, "leveldb_t is NULL");
    CHECK(leveldb_get(NULL, NULL, "a", 1, NULL, NULL) == NULL);
    leveldb_close(NULL);
    CHECK(leveldb_create_snapshot(NULL) == NULL);
    leveldb_release_snapshot(NULL, NULL);
    CHECK(leveldb_property_value(NULL, "leveldb.stats") == NULL);
    leveldb_approximate_sizes(NULL, 1, &null_key, &length, &null_key, &length, &size);
    CHECK(size == 0);
    leveldb_approximate_sizes(NULL, -1, NULL, NULL, NULL, NULL, NULL);
    leveldb_compact_range(NULL, NULL, 0, NULL, 0);
    leveldb_destroy_db(NULL, NULL, &error);
    CHECK_ERROR(error, "the name of the database is NULL");
    leveldb_repair_db(NULL, NULL, &error);
    CHECK_ERROR(error, "the name of the database is NULL");
    iterator = leveldb_create_iterator(NULL, NULL);
    leveldb_iter_seek_to_first(iterator);
    leveldb_iter_next(iterator);
    CHECK(!leveldb_iter_valid(iterator));
    expect_key(iterator, NULL);
    leveldb_iter_get_error(iterator, &error);
    CHECK_ERROR(error, "leveldb_t is NULL");
    leveldb_iter_destroy(iterator);
    leveldb_iter_destroy(NULL);
    leveldb_iter_seek(NULL, "a", 1);
    leveldb_iter_next(NULL);
    leveldb_iter_prev(NULL);
    CHECK(!leveldb_iter_valid(NULL) && leveldb_iter_key(NULL, NULL) == NULL);
    leveldb_writebatch_put(NULL, "a", 1, "b", 1);
    leveldb_writebatch_iterate(NULL, NULL, NULL, NULL);
    forebay_writebatch_iterate(NULL, NULL, NULL, NULL, &error);
    CHECK_ERROR(error, "leveldb_writebatch_t is NULL");
    leveldb_writebatch_append(NULL, NULL);
    leveldb_writebatch_destroy(NULL);
    leveldb_options_set_create_if_missing(NULL, 1);
    leveldb_options_set_comparator(NULL, NULL);
    leveldb_options_set_cache(NULL, NULL);
    leveldb_options_destroy(NULL);
    leveldb_readoptions_set_snapshot(NULL, NULL);
    leveldb_writeoptions_set_sync(NULL, 1);
    CHECK(leveldb_env_get_test_directory(NULL) == NULL);
    leveldb_env_destroy(NULL);
    leveldb_cache_destroy(NULL);
    leveldb_comparator_destroy(NULL);
    leveldb_filterpolicy_destroy(NULL);
    forebay_multi_get(NULL, NULL, 1, NULL, NULL, &no_value, &length, &error);
    CHECK(no_value == NULL);
    CHECK_ERROR(error, "NULL");
    no_value = (char *)&length;
    forebay_multi_get(NULL, NULL, 1, &null_key, &length, &no_value, NULL, &error);
    CHECK(no_value == NULL);
    CHECK_ERROR(error, "an array of 1 elements is NULL");
    CHECK(forebay_requests_create(NULL, "r/", 2, 1, &error) == NULL);
    CHECK_ERROR(error, "leveldb_t is NULL");
    CHECK(forebay_requests_write(NULL, NULL, "c", 1, 1, NULL, NULL, 0, NULL, NULL, &error) == NULL);
    CHECK_ERROR(error, "forebay_requests_t is NULL");
    forebay_requests_destroy(NULL);
}

static void orders(void) {
    leveldb_options_t *options = leveldb_options_create();
    leveldb_comparator_t *comparator = leveldb_comparator_create(NULL, NULL, NULL, own_order);
    leveldb_iterator_t *iterator;
    leveldb_t *db;
    start("orders of keys");
    leveldb_options_set_comparator(options, comparator);
    leveldb_comparator_destroy(comparator);
    CHECK(open_with(options) == NULL);
    CHECK(forebay_error_kind() == FOREBAY_ERROR_UNSUPPORTED);
    CHECK_ERROR(error, "Not implemented: the comparator \"order of the test\"");

    options = leveldb_options_create();
    forebay_options_set_key_order(options, 7);
    CHECK(open_with(options) == NULL);
    CHECK_ERROR(error, "7 is no order of keys");

    options = leveldb_options_create();
    comparator = leveldb_comparator_create(NULL, NULL, NULL, reverse);
    leveldb_options_set_comparator(options, comparator);
    leveldb_comparator_destroy(comparator);
    db = open_with(options);
    CHECK_NO_ERROR(error);
    put(db, "a", "1");
    put(db, "b", "2");
    iterator = leveldb_create_iterator(db, NULL);
    leveldb_iter_seek_to_first(iterator);
    expect_key(iterator, "b");
    leveldb_iter_destroy(iterator);
    forebay_close(db, &error);
    CHECK_NO_ERROR(error);

    CHECK(open_with(leveldb_options_create()) == NULL);
    CHECK_ERROR(error, "was created with the key order reverse-bytewise, not bytewise");
    leveldb_destroy_db(NULL, name, &error);
    CHECK_NO_ERROR(error);
}

/* A batch that lacks a write is not written, and a seek to nowhere is an error. */
static void batches_and_seeks(leveldb_t *db) {
    leveldb_writebatch_t *batch = leveldb_writebatch_create(), *other = leveldb_writebatch_create();
    leveldb_iterator_t *iterator = leveldb_create_iterator(db, NULL);
    char value[16];
    int how, seen = 0;
    start("batches and seeks");
    put(db, "x", "1");
    for (how = 0; how < 7; how++) {
        leveldb_writebatch_put(batch, "x", 1, "2", 1);
        switch (how) {
        case 0: leveldb_writebatch_put(batch, NULL, 1, "v", 1); break;
        case 1: leveldb_writebatch_put(batch, "k", 1, NULL, 3); break;
        case 2: leveldb_writebatch_delete(batch, NULL, 1); break;
        case 3: forebay_writebatch_merge(batch, "k", 1, NULL, 1); break;
        case 4: forebay_writebatch_delete_range(batch, "a", 1, NULL, 1); break;
        case 5:
            leveldb_writebatch_put(other, NULL, 1, "", 0);
            leveldb_writebatch_append(batch, other);
            break;
        default: leveldb_writebatch_append(batch, NULL);
        }
        CHECK(forebay_error_kind() == FOREBAY_ERROR_INVALID);
        leveldb_writebatch_put(batch, "x", 1, "3", 1);
        leveldb_writebatch_iterate(batch, &seen, count, count_deleted);
        forebay_writebatch_iterate(batch, &seen, count, count_deleted, &error);
        CHECK_ERROR(error, "Invalid argument");
        leveldb_write(db, NULL, batch, &error);
        CHECK_ERROR(error, "NULL");
        CHECK(seen == 0 && get(db, "x", value) && strcmp(value, "1") == 0);
        leveldb_writebatch_clear(batch);
        leveldb_write(db, NULL, batch, &error);
        CHECK_NO_ERROR(error);
    }
    leveldb_iter_seek_to_first(iterator);
    CHECK(leveldb_iter_valid(iterator));
    leveldb_iter_seek(iterator, NULL, 3);
    expect_key(iterator, NULL);
    leveldb_iter_next(iterator);
    leveldb_iter_get_error(iterator, &error);
    CHECK_ERROR(error, "Invalid argument: a pointer to 3 bytes is NULL");
    leveldb_iter_seek(iterator, NULL, 0);
    CHECK(leveldb_iter_valid(iterator));
    forebay_iter_seek_for_prev(iterator, NULL, 1);
    expect_key(iterator, NULL);
    leveldb_iter_get_error(iterator, &error);
    CHECK_ERROR(error, "NULL");
    leveldb_iter_destroy(iterator);
    leveldb_writebatch_destroy(other);
    leveldb_writebatch_destroy(batch);
    leveldb_delete(db, NULL, "x", 1, &error);
    CHECK_NO_ERROR(error);
}

/* A request of the client "client": puts `key`, and gives "done" as its result. Returns whether an earlier try was written. */
static int request(forebay_requests_t *requests, uint64_t number, const char *key) {
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    uint8_t is_repeated = 9;
    size_t length = 9;
    char *answer;
    leveldb_writebatch_put(batch, key, strlen(key), "1", 1);
    answer = forebay_requests_write(requests, NULL, "client", 6, number, batch, key, strlen(key), &is_repeated, &length,
                                    &error);
    leveldb_writebatch_destroy(batch);
    if (answer == NULL) {
        CHECK(length == 0 && is_repeated == 0 && error != NULL);
        return -1;
    }
    CHECK_NO_ERROR(error);
    CHECK(length == 5 && memcmp(answer, "first", 5) == 0);
    leveldb_free(answer);
    return is_repeated;
}

/* A request takes effect once, however often it is tried, and through any handle of its table. */
static void requests_that_are_tried_again(leveldb_t *db) {
    forebay_requests_t *requests, *same, *brief;
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    char value[16];
    int tries = 0;
    start("requests that are tried again");
    requests = forebay_requests_create(db, "r/", 2, FOREBAY_REQUESTS_LIFETIME_MS, &error);
    CHECK_NO_ERROR(error);
    same = forebay_requests_create(db, "r/", 2, FOREBAY_REQUESTS_LIFETIME_MS, &error);
    CHECK_NO_ERROR(error);
    CHECK(request(requests, 7, "first") == 0);
    CHECK(request(requests, 7, "other") == 1 && request(same, 7, "other") == 1);
    CHECK(get(db, "first", value) && !get(db, "other", value));
    CHECK(request(requests, 6, "other") == -1 && forebay_error_kind() == FOREBAY_ERROR_INVALID);
    CHECK_ERROR(error, "request 6 of the client");
    CHECK(!get(db, "other", value));

    /* Neither result nor places for what is returned are needed, and a batch that lacks a write is not written. */
    leveldb_writebatch_put(batch, "k", 1, NULL, 1);
    CHECK(forebay_requests_write(requests, NULL, "client", 6, 8, batch, NULL, 0, NULL, NULL, &error) == NULL);
    CHECK_ERROR(error, "NULL");
    leveldb_writebatch_clear(batch);
    leveldb_free(forebay_requests_write(requests, NULL, "client", 6, 8, batch, NULL, 0, NULL, NULL, &error));
    CHECK_NO_ERROR(error);
    CHECK(forebay_requests_write(requests, NULL, "", 0, 1, batch, NULL, 0, NULL, NULL, &error) == NULL);
    CHECK_ERROR(error, "name no client");
    leveldb_writebatch_destroy(batch);
    forebay_requests_destroy(same);
    forebay_requests_destroy(requests);

    /* An entry with a lifetime of zero is found again for at most a millisecond. */
    brief = forebay_requests_create(db, "brief/", 6, 0, &error);
    CHECK_NO_ERROR(error);
    CHECK(request(brief, 7, "first") == 0);
    while (request(brief, 7, "first") != 0) {
        CHECK(++tries < 1000000);
    }
    forebay_requests_destroy(brief);
}

/* A database of two shards opens with both when no number was set, and does not open with another number. */
static void shards_that_are_there(void) {
    leveldb_options_t *options = leveldb_options_create();
    leveldb_t *db;
    char *shards;
    start("shards that are there");
    db = open_with(options);
    CHECK_NO_ERROR(error);
    shards = leveldb_property_value(db, "forebay.num-shards");
    CHECK(shards != NULL && strcmp(shards, "2") == 0);
    leveldb_free(shards);
    leveldb_close(db);
    options = leveldb_options_create();
    forebay_options_set_shards(options, 1);
    CHECK(open_with(options) == NULL);
    CHECK_ERROR(error, "created with a number of shards of 2, not 1");
}

static void reads_and_writes(void) {
    leveldb_options_t *options = leveldb_options_create();
    leveldb_readoptions_t *bounded = leveldb_readoptions_create();
    leveldb_writebatch_t *batch = leveldb_writebatch_create();
    leveldb_iterator_t *iterator;
    const char *keys[3] = {"a", "none", "c"};
    size_t lengths[3] = {1, 4, 1}, found_lengths[3];
    char *values[3], value[16];
    leveldb_t *db;
    int seen = 0;
    start("reads and writes");
    forebay_options_set_memory_bytes(options, 256 << 20);
    forebay_options_set_shards(options, 2);
    forebay_options_set_merge_operator(options, "append");
    db = open_with(options);
    CHECK_NO_ERROR(error);
    put(db, "a", "1");
    put(db, "b", "2");
    put(db, "c", "");
    CHECK(get(db, "a", value) && strcmp(value, "1") == 0);
    CHECK(!get(db, "none", value));
    forebay_multi_get(db, NULL, 3, keys, lengths, values, found_lengths, &error);
    CHECK_NO_ERROR(error);
    CHECK(found_lengths[0] == 1 && *values[0] == '1' && values[1] == NULL && values[2] != NULL && found_lengths[2] == 0);
    leveldb_free(values[0]);
    leveldb_free(values[2]);
    forebay_merge(db, NULL, "m", 1, "1", 1, &error);
    CHECK_NO_ERROR(error);
    forebay_writebatch_merge(batch, "m", 1, "2", 1);
    leveldb_write(db, NULL, batch, &error);
    CHECK_NO_ERROR(error);
    leveldb_writebatch_clear(batch);
    CHECK(get(db, "m", value) && strcmp(value, "12") == 0);
    forebay_flush(db, &error);
    CHECK_NO_ERROR(error);
    forebay_compact_range(db, NULL, 0, NULL, 0, &error);
    CHECK_NO_ERROR(error);

    forebay_readoptions_set_bounds(bounded, "a\x01", 2, "c", 1);
    iterator = leveldb_create_iterator(db, bounded);
    leveldb_iter_seek_to_first(iterator);
    expect_key(iterator, "b");
    leveldb_iter_next(iterator);
    expect_key(iterator, NULL);
    forebay_iter_seek_for_prev(iterator, "z", 1);
    expect_key(iterator, "b");
    leveldb_iter_destroy(iterator);

    leveldb_writebatch_put(batch, "d", 1, "4", 1);
    forebay_writebatch_delete_range(batch, "a", 1, "c", 1);
    leveldb_writebatch_delete(batch, "c", 1);
    leveldb_writebatch_append(batch, batch);
    leveldb_writebatch_iterate(batch, &seen, count, count_deleted);
    CHECK(seen == 1 && forebay_error_kind() == FOREBAY_ERROR_UNSUPPORTED);
    forebay_writebatch_iterate(batch, &seen, count, count_deleted, &error);
    CHECK_ERROR(error, "Not implemented");
    CHECK(seen == 2);
    leveldb_write(db, NULL, batch, &error);
    CHECK_NO_ERROR(error);
    CHECK(!get(db, "a", value) && !get(db, "b", value) && !get(db, "c", value) && get(db, "d", value));
    forebay_delete_range(db, NULL, "d", 1, "e", 1, &error);
    CHECK_NO_ERROR(error);
    CHECK(!get(db, "d", value));
    forebay_delete_range(db, NULL, "e", 1, "d", 1, &error);
    CHECK_ERROR(error, "Invalid argument: the range ends before it starts");
    leveldb_put(db, NULL, "k", (size_t)-1, "v", 1, &error);
    CHECK_ERROR(error, "is the length negative?");
    leveldb_put(db, NULL, NULL, 3, "v", 1, &error);
    CHECK_ERROR(error, "a pointer to 3 bytes is NULL");
    batches_and_seeks(db);
    requests_that_are_tried_again(db);
    CHECK(forebay_get(db, NULL, "a", 1, NULL, NULL, &error) == 0);
    CHECK_ERROR(error, "the function that takes the value is NULL");
    {
        size_t length = 70000;
        char *key = calloc(length, 1);
        leveldb_put(db, NULL, key, length, "v", 1, &error);
        CHECK_ERROR(error, "the key has 70000 bytes");
        free(key);
    }
    leveldb_writebatch_destroy(batch);
    leveldb_readoptions_destroy(bounded);
    leveldb_destroy_db(NULL, name, &error);
    CHECK(forebay_error_kind() == FOREBAY_ERROR_BUSY);
    CHECK_ERROR(error, "IO error");
    leveldb_close(db);
    shards_that_are_there();
    leveldb_destroy_db(NULL, name, &error);
    CHECK_NO_ERROR(error);
}

/* Paths where no database can be: no option is at fault. */
static void impossible(void) {
    static const char *const paths[] = {"/proc/nope", "/etc/passwd"};
    size_t at;
    start("impossible paths");
    for (at = 0; at < sizeof paths / sizeof paths[0]; at++) {
        leveldb_options_t *options = leveldb_options_create();
        leveldb_options_set_create_if_missing(options, 1);
        leveldb_options_set_error_if_exists(options, 1);
        CHECK(leveldb_open(options, paths[at], &error) == NULL && error != NULL);
        CHECK(strstr(error, "create_if_missing") == NULL && strstr(error, "error_if_exists") == NULL);
        CHECK_ERROR(error, paths[at]);
        leveldb_options_destroy(options);
    }
}

/* On a memory node of another process, if its address was given. */
static void nodes(const char *address) {
    leveldb_options_t *options = leveldb_options_create();
    leveldb_writeoptions_t *synced = leveldb_writeoptions_create();
    char value[16];
    leveldb_t *db;
    start("memory nodes");
    forebay_options_set_memory_nodes(options, "udp://nowhere", &error);
    CHECK_ERROR(error, "Invalid argument");
    forebay_options_set_memory_nodes(options, "local", &error);
    CHECK_ERROR(error, "local is this process");
    forebay_options_set_memory_nodes(options, "shm:/nowhere/at/all", &error);
    CHECK_NO_ERROR(error);
    CHECK(leveldb_open(options, name, &error) == NULL);
    CHECK(forebay_error_kind() == FOREBAY_ERROR_UNAVAILABLE);
    CHECK_ERROR(error, "IO error");
    if (address != NULL) {
        leveldb_options_t *made = leveldb_options_create();
        int opened;
        leveldb_options_set_create_if_missing(made, 1);
        forebay_options_set_shards(made, 2);
        forebay_options_set_memory_nodes(made, address, &error);
        CHECK_NO_ERROR(error);
        leveldb_writeoptions_set_sync(synced, 1);
        forebay_options_set_memory_nodes(options, address, &error);
        CHECK_NO_ERROR(error);
        for (opened = 0; opened < 2; opened++) {
            db = leveldb_open(opened ? options : made, name, &error);
            CHECK_NO_ERROR(error);
            CHECK(get(db, "key", value) == opened);
            leveldb_put(db, synced, "key", 3, "value", 5, &error);
            CHECK_NO_ERROR(error);
            leveldb_close(db);
        }
        leveldb_options_destroy(made);
        leveldb_destroy_db(options, name, &error);
        CHECK_NO_ERROR(error);
    }
    leveldb_writeoptions_destroy(synced);
    leveldb_options_destroy(options);
}

/* Options of a database on these memory nodes, with a register if `place` is not empty. */
static leveldb_options_t *copied(const char *addresses, const char *place) {
    leveldb_options_t *options = leveldb_options_create();
    forebay_options_set_memory_nodes(options, addresses, &error);
    CHECK_NO_ERROR(error);
    forebay_options_set_register(options, place);
    return options;
}

static void destroy_copied(const char *addresses, const char *place) {
    leveldb_options_t *options = copied(addresses, place);
    leveldb_destroy_db(options, name, &error);
    CHECK_NO_ERROR(error);
    leveldb_options_destroy(options);
}

/* A database of two copies, one on each of these memory nodes, opens with both when no number was set. It does not open
 * with another number, and in a directory there is one copy. */
static void copies_that_are_there(const char *addresses) {
    leveldb_options_t *options = leveldb_options_create();
    static const size_t asked[] = {2, 1, 0};
    char value[16];
    leveldb_t *db;
    size_t at;
    start("copies that are there");
    forebay_options_set_copies(options, 2);
    CHECK(open_with(options) == NULL);
    CHECK_ERROR(error, "has one copy in memory");
    options = leveldb_options_create();
    forebay_options_set_register(options, "no text: \xff");
    CHECK(open_with(options) == NULL);
    CHECK_ERROR(error, "Invalid argument: the register is no text");
    if (addresses == NULL) {
        return;
    }
    for (at = 0; at < sizeof asked / sizeof asked[0]; at++) {
        options = copied(addresses, "");
        if (asked[at] > 0) {
            forebay_options_set_copies(options, asked[at]);
        }
        db = open_with(options);
        if (asked[at] == 1) {
            CHECK(db == NULL);
            CHECK_ERROR(error, "created with a number of copies of 2, not 1");
            continue;
        }
        CHECK_NO_ERROR(error);
        CHECK(get(db, "key", value) == (asked[at] == 0));
        put(db, "key", "value");
        leveldb_close(db);
    }
    destroy_copied(addresses, "");
}

/* A database whose register is in a folder opens with this register, and is dropped with it. */
static void copies_with_a_register(const char *addresses, const char *place) {
    leveldb_options_t *options = copied(addresses, place);
    char value[16];
    leveldb_t *db;
    start("copies with a register");
    forebay_options_set_copies(options, 2);
    db = open_with(options);
    CHECK_NO_ERROR(error);
    put(db, "key", "value");
    leveldb_close(db);
    CHECK(open_with(copied(addresses, "")) == NULL);
    CHECK_ERROR(error, "register");
    db = open_with(copied(addresses, place));
    CHECK_NO_ERROR(error);
    CHECK(get(db, "key", value));
    leveldb_close(db);
    destroy_copied(addresses, place);
    /* Nothing of it is left. */
    options = copied(addresses, place);
    forebay_options_set_copies(options, 2);
    leveldb_options_set_error_if_exists(options, 1);
    db = open_with(options);
    CHECK_NO_ERROR(error);
    leveldb_close(db);
    destroy_copied(addresses, place);
}

int main(int argc, char **argv) {
    CHECK(strcmp(forebay_version(), "") != 0 && forebay_error_kind() == 0);
    nonsense();
    orders();
    reads_and_writes();
    impossible();
    nodes(argc > 1 ? argv[1] : NULL);
    copies_that_are_there(argc > 2 ? argv[2] : NULL);
    if (argc > 3) {
        copies_with_a_register(argv[2], argv[3]);
    }
    puts("passed");
    return 0;
}
