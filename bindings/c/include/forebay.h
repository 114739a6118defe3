/*
 * Forebay's C interface: LevelDB's functions under their own names, and
 * forebay_... functions for what LevelDB does not have.
 *
 * Errors.    A function that can fail takes a `char **errptr`. It must point to
 *            NULL or to a string from malloc. On failure the old string is
 *            freed and the new one says what failed, beginning with LevelDB's
 *            class of errors; leveldb_free frees it. On success the old string
 *            stays. forebay_error_kind() has the kind of the thread's last error.
 * Memory.    What a function returns belongs to the caller, who frees it with
 *            leveldb_free, or with the destroy or release function of its type.
 * Threads.   Databases, snapshots, tables of requests, comparators, caches and
 *            environments may be used by any number of threads, and so may
 *            options that nobody changes meanwhile. One thread at a time may use
 *            an iterator or a batch.
 * NULL.      Where an object is needed, NULL is an error, never a crash. NULL
 *            for options means the defaults.
 * Fork.      A database belongs to the process that opened it. In a child that is
 *            forked later, its functions fail, and leveldb_close only frees the
 *            handle; the child may open databases of its own.
 * Truth.     A uint8_t that is not 0 is true.
 *
 * A name is the path of a directory, as in LevelDB. Writes are on the disk within
 * a second, or at once with sync. A process that returns from main or calls exit()
 * keeps all of its writes, even if it closes nothing. A process that is killed,
 * aborts or calls _exit() loses at most what it wrote without sync in the last
 * few milliseconds. See forebay_options_set_memory_nodes for databases on memory nodes.
 */
#ifndef FOREBAY_H
#define FOREBAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct leveldb_t leveldb_t;
typedef struct leveldb_cache_t leveldb_cache_t;
typedef struct leveldb_comparator_t leveldb_comparator_t;
typedef struct leveldb_env_t leveldb_env_t;
typedef struct leveldb_filterpolicy_t leveldb_filterpolicy_t;
typedef struct leveldb_iterator_t leveldb_iterator_t;
typedef struct leveldb_logger_t leveldb_logger_t;
typedef struct leveldb_options_t leveldb_options_t;
typedef struct leveldb_readoptions_t leveldb_readoptions_t;
typedef struct leveldb_snapshot_t leveldb_snapshot_t;
typedef struct leveldb_writebatch_t leveldb_writebatch_t;
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;
typedef struct forebay_requests_t forebay_requests_t;

/* Databases. */

leveldb_t *leveldb_open(const leveldb_options_t *options, const char *name, char **errptr);
/* Ends the handle. Iterators and snapshots must be gone before. */
void leveldb_close(leveldb_t *db);
void leveldb_put(leveldb_t *db, const leveldb_writeoptions_t *options, const char *key, size_t keylen,
                 const char *val, size_t vallen, char **errptr);
void leveldb_delete(leveldb_t *db, const leveldb_writeoptions_t *options, const char *key, size_t keylen,
                    char **errptr);
/* All of the batch becomes visible at once. */
void leveldb_write(leveldb_t *db, const leveldb_writeoptions_t *options, leveldb_writebatch_t *batch,
                   char **errptr);
/* NULL, and no error, for a key without a value. */
char *leveldb_get(leveldb_t *db, const leveldb_readoptions_t *options, const char *key, size_t keylen,
                  size_t *vallen, char **errptr);
const leveldb_snapshot_t *leveldb_create_snapshot(leveldb_t *db);
void leveldb_release_snapshot(leveldb_t *db, const leveldb_snapshot_t *snapshot);
/* NULL for an unknown name. */
char *leveldb_property_value(leveldb_t *db, const char *propname);
/* Fills `sizes` with one number of bytes for each range. */
void leveldb_approximate_sizes(leveldb_t *db, int num_ranges, const char *const *range_start_key,
                               const size_t *range_start_key_len, const char *const *range_limit_key,
                               const size_t *range_limit_key_len, uint64_t *sizes);
/* NULL for a key means that there is no bound on that side. */
void leveldb_compact_range(leveldb_t *db, const char *start_key, size_t start_key_len, const char *limit_key,
                           size_t limit_key_len);
void leveldb_destroy_db(const leveldb_options_t *options, const char *name, char **errptr);
void leveldb_repair_db(const leveldb_options_t *options, const char *name, char **errptr);

/* Iterators. What leveldb_iter_key and leveldb_iter_value return stays until
 * the iterator moves; a seek may be to it. Without a position they return NULL. */

leveldb_iterator_t *leveldb_create_iterator(leveldb_t *db, const leveldb_readoptions_t *options);
void leveldb_iter_destroy(leveldb_iterator_t *iterator);
uint8_t leveldb_iter_valid(const leveldb_iterator_t *iterator);
void leveldb_iter_seek_to_first(leveldb_iterator_t *iterator);
void leveldb_iter_seek_to_last(leveldb_iterator_t *iterator);
void leveldb_iter_seek(leveldb_iterator_t *iterator, const char *key, size_t keylen);
void leveldb_iter_next(leveldb_iterator_t *iterator);
void leveldb_iter_prev(leveldb_iterator_t *iterator);
const char *leveldb_iter_key(const leveldb_iterator_t *iterator, size_t *klen);
const char *leveldb_iter_value(const leveldb_iterator_t *iterator, size_t *vlen);
void leveldb_iter_get_error(const leveldb_iterator_t *iterator, char **errptr);

/* Write batches. If a write cannot be added (a pointer is NULL and its length is
 * not 0), leveldb_write fails, until leveldb_writebatch_clear. */

leveldb_writebatch_t *leveldb_writebatch_create(void);
void leveldb_writebatch_destroy(leveldb_writebatch_t *batch);
void leveldb_writebatch_clear(leveldb_writebatch_t *batch);
void leveldb_writebatch_put(leveldb_writebatch_t *batch, const char *key, size_t keylen, const char *val,
                            size_t vallen);
void leveldb_writebatch_delete(leveldb_writebatch_t *batch, const char *key, size_t keylen);
void leveldb_writebatch_iterate(const leveldb_writebatch_t *batch, void *state,
                                void (*put)(void *, const char *key, size_t keylen, const char *val,
                                            size_t vallen),
                                void (*deleted)(void *, const char *key, size_t keylen));
void leveldb_writebatch_append(leveldb_writebatch_t *destination, const leveldb_writebatch_t *source);

/* Options of a database. Those marked with a star are accepted and have no effect. */

leveldb_options_t *leveldb_options_create(void);
void leveldb_options_destroy(leveldb_options_t *options);
/* The comparator's name says which order of keys to use; see leveldb_comparator_create. */
void leveldb_options_set_comparator(leveldb_options_t *options, leveldb_comparator_t *comparator);
void leveldb_options_set_filter_policy(leveldb_options_t *options, leveldb_filterpolicy_t *policy); /* * */
void leveldb_options_set_create_if_missing(leveldb_options_t *options, uint8_t value);
void leveldb_options_set_error_if_exists(leveldb_options_t *options, uint8_t value);
void leveldb_options_set_paranoid_checks(leveldb_options_t *options, uint8_t value);    /* * */
void leveldb_options_set_env(leveldb_options_t *options, leveldb_env_t *env);           /* * */
void leveldb_options_set_info_log(leveldb_options_t *options, leveldb_logger_t *logger); /* * */
/* Bytes of a memtable. */
void leveldb_options_set_write_buffer_size(leveldb_options_t *options, size_t bytes);
void leveldb_options_set_max_open_files(leveldb_options_t *options, int files); /* * */
/* The cache's capacity limits the indexes of tables that this process keeps. */
void leveldb_options_set_cache(leveldb_options_t *options, leveldb_cache_t *cache);
void leveldb_options_set_block_size(leveldb_options_t *options, size_t bytes);            /* * */
void leveldb_options_set_block_restart_interval(leveldb_options_t *options, int keys);    /* * */
/* Record bytes of a table. */
void leveldb_options_set_max_file_size(leveldb_options_t *options, size_t bytes);
enum { leveldb_no_compression = 0, leveldb_snappy_compression = 1 };
void leveldb_options_set_compression(leveldb_options_t *options, int kind); /* * */

/* Comparators. A database has one of two orders of keys: by their bytes, which a
 * comparator named "leveldb.BytewiseComparator" stands for, and the reverse,
 * "rocksdb.ReverseBytewiseComparator" or "forebay.ReverseBytewiseComparator".
 * With any other comparator, leveldb_open fails: "Not implemented: ...". `name`
 * and `destructor` are called; `compare` never is. */

leveldb_comparator_t *leveldb_comparator_create(void *state, void (*destructor)(void *),
                                                int (*compare)(void *, const char *a, size_t alen,
                                                               const char *b, size_t blen),
                                                const char *(*name)(void *));
void leveldb_comparator_destroy(leveldb_comparator_t *comparator);

/* Filter policies, which nothing needs. Only `destructor` is called. */

leveldb_filterpolicy_t *
leveldb_filterpolicy_create(void *state, void (*destructor)(void *),
                            char *(*create_filter)(void *, const char *const *keys, const size_t *keylens,
                                                   int num_keys, size_t *filter_length),
                            uint8_t (*key_may_match)(void *, const char *key, size_t keylen,
                                                     const char *filter, size_t filter_length),
                            const char *(*name)(void *));
void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t *policy);
leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits_per_key);

/* Options of a read. */

leveldb_readoptions_t *leveldb_readoptions_create(void);
void leveldb_readoptions_destroy(leveldb_readoptions_t *options);
void leveldb_readoptions_set_verify_checksums(leveldb_readoptions_t *options, uint8_t value); /* always */
void leveldb_readoptions_set_fill_cache(leveldb_readoptions_t *options, uint8_t value);       /* * */
/* NULL reads what is there now. */
void leveldb_readoptions_set_snapshot(leveldb_readoptions_t *options, const leveldb_snapshot_t *snapshot);

/* Options of a write. */

leveldb_writeoptions_t *leveldb_writeoptions_create(void);
void leveldb_writeoptions_destroy(leveldb_writeoptions_t *options);
/* The write is on the disk before the call returns, or with memory nodes in
 * their memory. An empty batch with sync does this for all earlier writes. */
void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *options, uint8_t value);

/* Caches, environments, memory, and versions. */

leveldb_cache_t *leveldb_cache_create_lru(size_t capacity);
void leveldb_cache_destroy(leveldb_cache_t *cache);
leveldb_env_t *leveldb_create_default_env(void);
void leveldb_env_destroy(leveldb_env_t *env);
/* A folder for tests, which exists; NULL if it cannot be made. */
char *leveldb_env_get_test_directory(leveldb_env_t *env);
void leveldb_free(void *memory);
/* The version of LevelDB whose interface this is: 1.23. */
int leveldb_major_version(void);
int leveldb_minor_version(void);

/* Extensions that LevelDB does not have. */

/* What the caller must do about an error. */
enum {
    FOREBAY_ERROR_INVALID = 1,        /* change the arguments; nothing was done */
    FOREBAY_ERROR_NOT_FOUND = 2,      /* it does not exist */
    FOREBAY_ERROR_ALREADY_EXISTS = 3, /* it exists */
    FOREBAY_ERROR_FULL = 4,           /* free memory, or add some */
    FOREBAY_ERROR_BUSY = 5,           /* try again later */
    FOREBAY_ERROR_UNAVAILABLE = 6,    /* a memory node is gone: open again */
    FOREBAY_ERROR_FENCED = 7,         /* another process took over: stop */
    FOREBAY_ERROR_ACCESS_DENIED = 8,  /* a memory node does not let this process in */
    FOREBAY_ERROR_CORRUPT = 9,        /* restore */
    FOREBAY_ERROR_TIMED_OUT = 10,     /* it may have taken effect */
    FOREBAY_ERROR_CLOSED = 11,        /* this process closed it */
    FOREBAY_ERROR_IO = 12,            /* the operating system refused */
    FOREBAY_ERROR_UNSUPPORTED = 13,   /* this version cannot do it */
    FOREBAY_ERROR_CONFLICT = 14       /* a condition no longer holds; nothing was done */
};
/* The kind of this thread's last error, also of functions that cannot report
 * one; 0 before the first. */
int forebay_error_kind(void);
/* Forebay's version, which the library owns. */
const char *forebay_version(void);

/* As leveldb_close, and reports the error of the last flush. The handle ends. */
void forebay_close(leveldb_t *db, char **errptr);
/* Passes the value to `found` without a copy, and returns whether there is one. `found`
 * must not call this library. */
uint8_t forebay_get(leveldb_t *db, const leveldb_readoptions_t *options, const char *key, size_t keylen,
                    void (*found)(void *, const char *val, size_t vallen), void *state, char **errptr);
/* Fills `values` and `vallens`, all as of the same moment; NULL for a key without a value. */
void forebay_multi_get(leveldb_t *db, const leveldb_readoptions_t *options, size_t count,
                       const char *const *keys, const size_t *keylens, char **values, size_t *vallens,
                       char **errptr);
/* Adds an operand. The database's merge operator makes the key's value from the operands. */
void forebay_merge(leveldb_t *db, const leveldb_writeoptions_t *options, const char *key, size_t keylen,
                   const char *operand, size_t operandlen, char **errptr);
void forebay_writebatch_merge(leveldb_writebatch_t *batch, const char *key, size_t keylen,
                              const char *operand, size_t operandlen);
/* Removes the keys from `from` to before `to`, at the cost of one record. */
void forebay_delete_range(leveldb_t *db, const leveldb_writeoptions_t *options, const char *from,
                          size_t fromlen, const char *to, size_t tolen, char **errptr);
void forebay_writebatch_delete_range(leveldb_writebatch_t *batch, const char *from, size_t fromlen,
                                     const char *to, size_t tolen);
/* As leveldb_writebatch_iterate, with errors: FOREBAY_ERROR_UNSUPPORTED at a range
 * deletion or an operand. If a write could not be added, nothing is passed. */
void forebay_writebatch_iterate(const leveldb_writebatch_t *batch, void *state,
                                void (*put)(void *, const char *key, size_t keylen, const char *val,
                                            size_t vallen),
                                void (*deleted)(void *, const char *key, size_t keylen), char **errptr);

/* Writes that may be tried again. After most errors nobody knows whether a write
 * took effect. A write that names its client and request takes effect once, however
 * often it is tried, and whichever process has the database open. */

/* How long the table keeps a client's last request: a day. */
#define FOREBAY_REQUESTS_LIFETIME_MS UINT64_C(86400000)
/* A table of requests whose keys begin with `prefix`; do not use it for other keys.
 * All tables of a prefix are the same one. A request that is tried again more
 * than `lifetime_ms` after its client's last request takes effect again. */
forebay_requests_t *forebay_requests_create(leveldb_t *db, const char *prefix, size_t prefixlen,
                                            uint64_t lifetime_ms, char **errptr);
/* Ends the handle; the table stays. */
void forebay_requests_destroy(forebay_requests_t *requests);
/* Writes the batch as request `number` of a client, which has a name of 1 to 255
 * bytes and numbers that grow, or finds that it was written. Returns the result of
 * the written try: `result` of this try, or that of an earlier one. In the latter
 * case `is_repeated` gets 1 and nothing is written. A number before that of a
 * written request is FOREBAY_ERROR_INVALID. After any other error the same call
 * can be made again, also by another process. */
char *forebay_requests_write(forebay_requests_t *requests, const leveldb_writeoptions_t *options,
                             const char *client, size_t clientlen, uint64_t number, leveldb_writebatch_t *batch,
                             const char *result, size_t resultlen, uint8_t *is_repeated, size_t *answerlen,
                             char **errptr);

/* Flushes earlier writes to the memory nodes. */
void forebay_flush(leveldb_t *db, char **errptr);
/* As leveldb_compact_range, with errors. */
void forebay_compact_range(leveldb_t *db, const char *start_key, size_t start_key_len, const char *limit_key,
                           size_t limit_key_len, char **errptr);
/* Goes to the last key that is not after `key`. */
void forebay_iter_seek_for_prev(leveldb_iterator_t *iterator, const char *key, size_t keylen);
/* The first key that iterators show, and the first key that they no longer show; NULL for no bound. */
void forebay_readoptions_set_bounds(leveldb_readoptions_t *options, const char *lower, size_t lowerlen,
                                    const char *upper, size_t upperlen);

enum { FOREBAY_ORDER_BYTEWISE = 0, FOREBAY_ORDER_REVERSE_BYTEWISE = 1 };
void forebay_options_set_key_order(leveldb_options_t *options, int order);
/* Memory that a database in a directory may take, 4 GiB by default; what does
 * not fit is stored in the directory alone. */
void forebay_options_set_memory_bytes(leveldb_options_t *options, uint64_t bytes);
/* Addresses of memory nodes as "tcp://host:port" or "shm:path", separated by
 * commas. A database on them has a name of letters, digits, '.', '_' and '-',
 * and outlives the process. A process that is killed, aborts or calls _exit()
 * loses all writes without sync that are not flushed yet: see forebay_flush. An
 * empty text means a directory. */
void forebay_options_set_memory_nodes(leveldb_options_t *options, const char *addresses, char **errptr);
/* Key ranges with a tree of their own; fixed when the database is created: a
 * database that has another number does not open. By default as many as the
 * database has, and 1 for a new one. */
void forebay_options_set_shards(leveldb_options_t *options, size_t shards);
/* Copies of the database, each on another memory node; fixed when the database is
 * created. Every write is in all copies before it returns. By default as many as the
 * database has, and 1 for a new one. A database in a directory has 1. */
void forebay_options_set_copies(leveldb_options_t *options, size_t copies);
/* Where it is stored which memory nodes hold the copies: a path or a URL. It must
 * outlive the memory nodes, and a database that was created with it opens with it
 * alone; it is also named to drop the database. Without one, or with an empty text,
 * more than half of the memory nodes must be there to open the database. */
void forebay_options_set_register(leveldb_options_t *options, const char *url);
/* counter, append, append: and a separator, or last; an existing database keeps its own. */
void forebay_options_set_merge_operator(leveldb_options_t *options, const char *name);

#ifdef __cplusplus
}
#endif

#endif /* FOREBAY_H */
