/*
 * Each function of LevelDB's C interface, in the phases in which a program uses
 * them. Everything here holds for LevelDB too: linked with it, the program passes.
 */
#include "check.h"
#include <leveldb/c.h>
#include <stdint.h>

static char *error = NULL;
static leveldb_readoptions_t *read_options;
static leveldb_writeoptions_t *write_options;

static void put(leveldb_t *db, const char *key, const char *value) {
    leveldb_put(db, write_options, key, strlen(key), value, strlen(value), &error);
    CHECK_NO_ERROR(error);
}

static void delete_key(leveldb_t *db, const char *key) {
    leveldb_delete(db, write_options, key, strlen(key), &error);
    CHECK_NO_ERROR(error);
}

/* Checks that the value of `key` is `expected`, or that it has none if `expected` is NULL. */
static void expect(leveldb_t *db, const leveldb_readoptions_t *options, const char *key, const char *expected) {
    size_t length = 77;
    char *value = leveldb_get(db, options, key, strlen(key), &length, &error);
    CHECK_NO_ERROR(error);
    if (expected == NULL) {
        CHECK(value == NULL && length == 0);
    } else {
        CHECK(value != NULL && length == strlen(expected) && memcmp(value, expected, length) == 0);
    }
    leveldb_free(value);
}

static int is_at(const leveldb_iterator_t *iterator, const char *key, const char *value) {
    size_t keylen, vallen;
    const char *found_key, *found_value;
    if (!leveldb_iter_valid(iterator)) {
        return 0;
    }
    found_key = leveldb_iter_key(iterator, &keylen);
    found_value = leveldb_iter_value(iterator, &vallen);
    return keylen == strlen(key) && memcmp(found_key, key, keylen) == 0 && vallen == strlen(value) &&
           memcmp(found_value, value, vallen) == 0;
}

/* What a batch's iteration showed, as text. */
typedef struct {
    char text[256];
} seen_t;

static void add(seen_t *seen, const char *bytes, size_t length) {
    size_t used = strlen(seen->text);
    CHECK(used + length < sizeof seen->text);
    memcpy(seen->text + used, bytes, length);
    seen->text[used + length] = 0;
}

static void see_put(void *state, const char *key, size_t keylen, const char *val, size_t vallen) {
    add(state, key, keylen);
    add(state, "=", 1);
    add(state, val, vallen);
    add(state, ";", 1);
}

static void see_delete(void *state, const char *key, size_t keylen) {
    add(state, "-", 1);
    add(state, key, keylen);
    add(state, ";", 1);
}

static int destroyed = 0;

static void count_destroyed(void *state) {
    CHECK(state == &destroyed);
    destroyed += 1;
}

static int compare_bytes(void *state, const char *a, size_t alen, const char *b, size_t blen) {
    size_t common = alen < blen ? alen : blen;
    int order = memcmp(a, b, common);
    (void)state;
    return order != 0 ? order : (alen > blen) - (alen < blen);
}

static const char *bytewise(void *state) {
    (void)state;
    return "leveldb.BytewiseComparator";
}

static const char *policy_name(void *state) {
    (void)state;
    return "policy of the test";
}

static char *make_filter(void *state, const char *const *keys, const size_t *keylens, int num_keys,
                         size_t *filter_length) {
    char *filter = malloc(4);
    (void)state, (void)keys, (void)keylens, (void)num_keys;
    memcpy(filter, "all?", 4);
    *filter_length = 4;
    return filter;
}

static uint8_t may_match(void *state, const char *key, size_t keylen, const char *filter, size_t filter_length) {
    (void)state, (void)key, (void)keylen;
    return filter_length == 4 && memcmp(filter, "all?", 4) == 0;
}

int main(int argc, char **argv) {
    leveldb_env_t *env;
    leveldb_cache_t *cache;
    leveldb_options_t *options;
    leveldb_comparator_t *comparator;
    leveldb_t *db;
    char *folder, name[512];

    CHECK(leveldb_major_version() >= 1 && leveldb_minor_version() >= 1);

    start("objects");
    env = leveldb_create_default_env();
    cache = leveldb_cache_create_lru(1 << 20);
    folder = leveldb_env_get_test_directory(env);
    CHECK(folder != NULL);
    snprintf(name, sizeof name, "%s/%s", folder, argc > 1 ? argv[1] : "c_program");
    leveldb_free(folder);
    comparator = leveldb_comparator_create(&destroyed, count_destroyed, compare_bytes, bytewise);
    options = leveldb_options_create();
    leveldb_options_set_comparator(options, comparator);
    leveldb_options_set_env(options, env);
    leveldb_options_set_info_log(options, NULL);
    leveldb_options_set_cache(options, cache);
    leveldb_options_set_write_buffer_size(options, 100000);
    leveldb_options_set_paranoid_checks(options, 1);
    leveldb_options_set_max_open_files(options, 20);
    leveldb_options_set_block_size(options, 1024);
    leveldb_options_set_block_restart_interval(options, 8);
    leveldb_options_set_max_file_size(options, 3 << 20);
    leveldb_options_set_compression(options, leveldb_no_compression);
    read_options = leveldb_readoptions_create();
    leveldb_readoptions_set_verify_checksums(read_options, 1);
    leveldb_readoptions_set_fill_cache(read_options, 1);
    write_options = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(write_options, 1);

    start("destroy, also what is not there");
    leveldb_destroy_db(options, name, &error);
    CHECK_NO_ERROR(error);

    start("an open that fails");
    db = leveldb_open(options, name, &error);
    CHECK(db == NULL);
    CHECK_ERROR(error, "does not exist");

    start("open, and an error that stays or is replaced");
    leveldb_options_set_create_if_missing(options, 1);
    error = malloc(sizeof "from before");
    memcpy(error, "from before", sizeof "from before");
    db = leveldb_open(options, name, &error);
    CHECK(db != NULL && strcmp(error, "from before") == 0);
    {
        leveldb_t *second = leveldb_open(options, name, &error);
        CHECK(second == NULL && strcmp(error, "from before") != 0);
        CHECK_ERROR(error, "IO error");
    }
    expect(db, read_options, "foo", NULL);

    start("put, get, delete");
    put(db, "foo", "hello");
    expect(db, read_options, "foo", "hello");
    put(db, "foo", "");
    expect(db, read_options, "foo", "");
    delete_key(db, "foo");
    expect(db, read_options, "foo", NULL);
    delete_key(db, "never there");
    leveldb_put(db, write_options, NULL, 0, "of the empty key", 16, &error);
    CHECK_NO_ERROR(error);
    expect(db, read_options, "", "of the empty key");
    delete_key(db, "");
    leveldb_put(db, write_options, "zero\0inside", 11, "a\0b", 3, &error);
    CHECK_NO_ERROR(error);
    {
        size_t length;
        char *value = leveldb_get(db, read_options, "zero\0inside", 11, &length, &error);
        CHECK(length == 3 && memcmp(value, "a\0b", 3) == 0);
        leveldb_free(value);
        leveldb_delete(db, write_options, "zero\0inside", 11, &error);
        CHECK_NO_ERROR(error);
    }
    put(db, "foo", "hello");

    start("compact everything, and a range");
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    expect(db, read_options, "foo", "hello");
    leveldb_compact_range(db, "a", 1, "z", 1);
    expect(db, read_options, "foo", "hello");

    start("a batch");
    {
        leveldb_writebatch_t *batch = leveldb_writebatch_create(), *other = leveldb_writebatch_create();
        seen_t seen = {""};
        leveldb_writebatch_put(batch, "foo", 3, "a", 1);
        leveldb_writebatch_clear(batch);
        leveldb_writebatch_put(batch, "bar", 3, "b", 1);
        leveldb_writebatch_put(batch, "box", 3, "c", 1);
        leveldb_writebatch_put(other, "bar", 3, "d", 1);
        leveldb_writebatch_delete(other, "gone", 4);
        leveldb_writebatch_append(batch, other);
        expect(db, read_options, "box", NULL);
        leveldb_write(db, write_options, batch, &error);
        CHECK_NO_ERROR(error);
        expect(db, read_options, "foo", "hello");
        expect(db, read_options, "bar", "d");
        expect(db, read_options, "box", "c");
        leveldb_writebatch_iterate(batch, &seen, see_put, see_delete);
        CHECK(strcmp(seen.text, "bar=b;box=c;bar=d;-gone;") == 0);
        put(db, "bar", "b");
        leveldb_writebatch_destroy(batch);
        leveldb_writebatch_destroy(other);
    }

    start("an iterator");
    {
        leveldb_iterator_t *iterator = leveldb_create_iterator(db, read_options);
        CHECK(!leveldb_iter_valid(iterator));
        leveldb_iter_seek_to_first(iterator);
        CHECK(is_at(iterator, "bar", "b"));
        leveldb_iter_next(iterator);
        CHECK(is_at(iterator, "box", "c"));
        leveldb_iter_prev(iterator);
        CHECK(is_at(iterator, "bar", "b"));
        leveldb_iter_prev(iterator);
        CHECK(!leveldb_iter_valid(iterator));
        leveldb_iter_seek_to_last(iterator);
        CHECK(is_at(iterator, "foo", "hello"));
        leveldb_iter_seek(iterator, "b", 1);
        CHECK(is_at(iterator, "bar", "b"));
        leveldb_iter_seek(iterator, "boy", 3);
        CHECK(is_at(iterator, "foo", "hello"));
        put(db, "goo", "not for this iterator");
        leveldb_iter_next(iterator);
        CHECK(!leveldb_iter_valid(iterator));
        leveldb_iter_get_error(iterator, &error);
        CHECK_NO_ERROR(error);
        leveldb_iter_destroy(iterator);
        delete_key(db, "goo");
    }

    start("seeks to what an iterator is at");
    {
        leveldb_iterator_t *iterator;
        const char *found;
        size_t length;
        int step;
        put(db, "chain 1", "chain 3");
        put(db, "chain 2", "not in the chain");
        put(db, "chain 3", "chain 1");
        leveldb_compact_range(db, NULL, 0, NULL, 0);
        iterator = leveldb_create_iterator(db, read_options);
        leveldb_iter_seek(iterator, "chain 1", 7);
        for (step = 0; step < 100; step++) {
            CHECK(step % 2 == 0 ? is_at(iterator, "chain 1", "chain 3") : is_at(iterator, "chain 3", "chain 1"));
            found = leveldb_iter_key(iterator, &length);
            leveldb_iter_seek(iterator, found, length);
            CHECK(step % 2 == 0 ? is_at(iterator, "chain 1", "chain 3") : is_at(iterator, "chain 3", "chain 1"));
            found = leveldb_iter_value(iterator, &length);
            leveldb_iter_seek(iterator, found, length);
        }
        leveldb_iter_get_error(iterator, &error);
        CHECK_NO_ERROR(error);
        leveldb_iter_destroy(iterator);
        delete_key(db, "chain 1");
        delete_key(db, "chain 2");
        delete_key(db, "chain 3");
    }

    start("sizes of ranges");
    {
        const char *starts[2] = {"a", "k00000000000000010000"}, *limits[2] = {"k00000000000000010000", "z"};
        size_t start_lengths[2] = {1, 21}, limit_lengths[2] = {21, 1};
        uint64_t sizes[2] = {0, 0};
        char key[64], value[100];
        uint32_t random = 12345;
        int i, j;
        leveldb_writeoptions_set_sync(write_options, 0);
        for (i = 0; i < 20000; i++) {
            int length = snprintf(key, sizeof key, "k%020d", i);
            for (j = 0; j < (int)sizeof value; j++) {
                random = random * 1664525 + 1013904223;
                value[j] = (char)(random >> 24);
            }
            leveldb_put(db, write_options, key, (size_t)length, value, sizeof value, &error);
            CHECK_NO_ERROR(error);
        }
        leveldb_compact_range(db, NULL, 0, NULL, 0);
        leveldb_approximate_sizes(db, 2, starts, start_lengths, limits, limit_lengths, sizes);
        CHECK(sizes[0] > 800000 && sizes[1] > 800000 && sizes[0] < 2000000 && sizes[1] < 2000000);
        starts[0] = "z";
        leveldb_approximate_sizes(db, 1, starts, start_lengths, limits, limit_lengths, sizes);
        CHECK(sizes[0] == 0);
        leveldb_approximate_sizes(db, 0, NULL, NULL, NULL, NULL, NULL);
    }

    start("properties");
    {
        static const char *const known[] = {"leveldb.num-files-at-level0", "leveldb.stats", "leveldb.sstables",
                                            "leveldb.approximate-memory-usage"};
        size_t i;
        CHECK(leveldb_property_value(db, "nosuchprop") == NULL);
        CHECK(leveldb_property_value(db, "leveldb.nosuchprop") == NULL);
        for (i = 0; i < sizeof known / sizeof *known; i++) {
            char *value = leveldb_property_value(db, known[i]);
            CHECK(value != NULL && value[0] != 0);
            leveldb_free(value);
        }
    }

    start("a snapshot");
    {
        const leveldb_snapshot_t *snapshot = leveldb_create_snapshot(db);
        leveldb_iterator_t *iterator;
        delete_key(db, "foo");
        put(db, "bar", "new");
        leveldb_readoptions_set_snapshot(read_options, snapshot);
        expect(db, read_options, "foo", "hello");
        expect(db, read_options, "bar", "b");
        iterator = leveldb_create_iterator(db, read_options);
        leveldb_iter_seek_to_first(iterator);
        CHECK(is_at(iterator, "bar", "b"));
        leveldb_iter_destroy(iterator);
        leveldb_readoptions_set_snapshot(read_options, NULL);
        expect(db, read_options, "foo", NULL);
        expect(db, read_options, "bar", "new");
        leveldb_release_snapshot(db, snapshot);
    }

    start("repair");
    leveldb_close(db);
    leveldb_options_set_create_if_missing(options, 0);
    leveldb_options_set_error_if_exists(options, 0);
    leveldb_repair_db(options, name, &error);
    CHECK_NO_ERROR(error);
    db = leveldb_open(options, name, &error);
    CHECK_NO_ERROR(error);
    expect(db, read_options, "foo", NULL);
    expect(db, read_options, "bar", "new");
    expect(db, read_options, "box", "c");
    leveldb_close(db);

    start("a database that exists");
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_error_if_exists(options, 1);
    db = leveldb_open(options, name, &error);
    CHECK(db == NULL);
    CHECK_ERROR(error, "exists (error_if_exists is true)");
    leveldb_options_set_error_if_exists(options, 0);

    start("filters");
    {
        int made;
        for (made = 0; made < 2; made++) {
            leveldb_filterpolicy_t *policy =
                made ? leveldb_filterpolicy_create(&destroyed, count_destroyed, make_filter, may_match, policy_name)
                     : leveldb_filterpolicy_create_bloom(10);
            leveldb_destroy_db(options, name, &error);
            CHECK_NO_ERROR(error);
            leveldb_options_set_filter_policy(options, policy);
            db = leveldb_open(options, name, &error);
            CHECK_NO_ERROR(error);
            put(db, "foo", "foovalue");
            put(db, "bar", "barvalue");
            leveldb_compact_range(db, NULL, 0, NULL, 0);
            expect(db, read_options, "foo", "foovalue");
            expect(db, read_options, "bar", "barvalue");
            expect(db, read_options, "baz", NULL);
            leveldb_close(db);
            leveldb_options_set_filter_policy(options, NULL);
            leveldb_filterpolicy_destroy(policy);
        }
        CHECK(destroyed == 1);
    }

    start("the end");
    leveldb_destroy_db(options, name, &error);
    CHECK_NO_ERROR(error);
    leveldb_readoptions_destroy(read_options);
    leveldb_writeoptions_destroy(write_options);
    leveldb_options_destroy(options);
    leveldb_comparator_destroy(comparator);
    CHECK(destroyed == 2);
    leveldb_cache_destroy(cache);
    leveldb_env_destroy(env);
    leveldb_free(NULL);
    puts("passed");
    return 0;
}
