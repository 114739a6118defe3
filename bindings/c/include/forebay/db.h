// Databases.
#ifndef FOREBAY_DB_H
#define FOREBAY_DB_H

#include <forebay.h>
#include <forebay/cache.h>
#include <forebay/comparator.h>
#include <forebay/detail.h>
#include <forebay/env.h>
#include <forebay/filter_policy.h>
#include <forebay/iterator.h>
#include <forebay/options.h>
#include <forebay/requests.h>
#include <forebay/slice.h>
#include <forebay/status.h>
#include <forebay/write_batch.h>

#include <cstdint>
#include <string>
#include <vector>

namespace forebay {

// The version of LevelDB whose interface this is.
static const int kMajorVersion = 1;
static const int kMinorVersion = 23;

// A moment of a database. DB::ReleaseSnapshot ends it.
class Snapshot {
public:
    explicit Snapshot(const leveldb_snapshot_t *snapshot) : snapshot_(snapshot) {}
    const leveldb_snapshot_t *handle() const { return snapshot_; }

private:
    const leveldb_snapshot_t *snapshot_;
};

// Keys from `start` to before `limit`.
struct Range {
    Range() = default;
    Range(const Slice &first, const Slice &last) : start(first), limit(last) {}
    Slice start;
    Slice limit;
};

// An ordered map from keys to values, which any number of threads may use.
class DB {
public:
    DB() = default;
    DB(const DB &) = delete;
    DB &operator=(const DB &) = delete;
    virtual ~DB() = default;

    // Opens the database of this name, and puts it into `*db`, where the caller deletes it. The name is the
    // path of a directory, or with Options::memory_nodes that of a database on them.
    static Status Open(const Options &options, const std::string &name, DB **db);

    virtual Status Put(const WriteOptions &options, const Slice &key, const Slice &value) = 0;
    // The key need not exist.
    virtual Status Delete(const WriteOptions &options, const Slice &key) = 0;
    virtual Status Write(const WriteOptions &options, WriteBatch *updates) = 0;
    // NotFound for a key without a value; `*value` then stays as it is.
    virtual Status Get(const ReadOptions &options, const Slice &key, std::string *value) = 0;
    // The caller deletes it, before the database.
    virtual Iterator *NewIterator(const ReadOptions &options) = 0;
    virtual const Snapshot *GetSnapshot() = 0;
    virtual void ReleaseSnapshot(const Snapshot *snapshot) = 0;
    // False for an unknown name.
    virtual bool GetProperty(const Slice &property, std::string *value) = 0;
    // Puts bytes of the records in each of `n` ranges into `sizes`.
    virtual void GetApproximateSizes(const Range *range, int n, uint64_t *sizes) = 0;
    // Null is no bound.
    virtual void CompactRange(const Slice *begin, const Slice *end) = 0;

    // Extensions that LevelDB does not have.

    // The values of all keys as of one moment, in few round trips; a status for each.
    virtual std::vector<Status> MultiGet(const ReadOptions &options, const std::vector<Slice> &keys,
                                         std::vector<std::string> *values) = 0;
    // Adds an operand. The database's merge operator makes the key's value from the operands.
    virtual Status Merge(const WriteOptions &options, const Slice &key, const Slice &operand) = 0;
    // Removes the keys from `from` to before `to`.
    virtual Status DeleteRange(const WriteOptions &options, const Slice &from, const Slice &to) = 0;
    // Puts the table of requests whose keys begin with `prefix` into `*requests`, where the caller deletes it; do not
    // use the prefix for other keys. A request that is tried again more than `lifetime_ms` after its client's last
    // request takes effect again.
    virtual Status NewRequests(const Slice &prefix, Requests **requests,
                               uint64_t lifetime_ms = FOREBAY_REQUESTS_LIFETIME_MS) = 0;
    // Flushes earlier writes to the memory nodes.
    virtual Status Flush() = 0;
    // Closes the database and says what failed. Only deleting it is allowed afterwards.
    virtual Status Close() = 0;
};

namespace detail {

// Options for C. If an option is wrong, `*status` is not ok.
inline OptionsHandle ForC(const Options &options, Status *status) {
    OptionsHandle made(leveldb_options_create());
    leveldb_options_t *c = made.get();
    struct Name {
        static const char *Of(void *state) { return static_cast<const char *>(state); }
    };
    if (options.comparator != nullptr) {
        // An exception of Name() must not pass through C, so C does not call it.
        void *state = const_cast<char *>(options.comparator->Name());
        leveldb_comparator_t *comparator = leveldb_comparator_create(state, nullptr, nullptr, Name::Of);
        leveldb_options_set_comparator(c, comparator);
        leveldb_comparator_destroy(comparator);
    }
    leveldb_options_set_create_if_missing(c, options.create_if_missing);
    leveldb_options_set_error_if_exists(c, options.error_if_exists);
    if (options.write_buffer_size != 0) {
        leveldb_options_set_write_buffer_size(c, options.write_buffer_size);
    }
    if (options.max_file_size != 0) {
        leveldb_options_set_max_file_size(c, options.max_file_size);
    }
    if (options.block_cache != nullptr) {
        leveldb_cache_t *cache = leveldb_cache_create_lru(options.block_cache->capacity());
        leveldb_options_set_cache(c, cache);
        leveldb_cache_destroy(cache);
    }
    if (options.memory_bytes != 0) {
        forebay_options_set_memory_bytes(c, options.memory_bytes);
    }
    if (options.shards != 0) {
        forebay_options_set_shards(c, options.shards);
    }
    if (options.copies != 0) {
        forebay_options_set_copies(c, options.copies);
    }
    forebay_options_set_register(c, options.copies_register.c_str());
    forebay_options_set_merge_operator(c, options.merge_operator.c_str());
    char *error = nullptr;
    forebay_options_set_memory_nodes(c, options.memory_nodes.c_str(), &error);
    *status = Status::Take(error);
    return made;
}

// The bytes of a bound for C, where null is no bound. An empty bound may have no bytes.
inline const char *BytesOf(const Slice *bound) {
    return bound == nullptr ? nullptr : bound->empty() ? "" : bound->data();
}

inline size_t LengthOf(const Slice *bound) { return bound == nullptr ? 0 : bound->size(); }

// Null, which means the defaults, if nothing else is asked for.
inline ReadHandle ForC(const ReadOptions &options) {
    if (options.snapshot == nullptr && options.lower_bound == nullptr && options.upper_bound == nullptr) {
        return nullptr;
    }
    ReadHandle made(leveldb_readoptions_create());
    if (options.snapshot != nullptr) {
        leveldb_readoptions_set_snapshot(made.get(), options.snapshot->handle());
    }
    const Slice *lower = options.lower_bound, *upper = options.upper_bound;
    forebay_readoptions_set_bounds(made.get(), BytesOf(lower), LengthOf(lower), BytesOf(upper), LengthOf(upper));
    return made;
}

class Database final : public DB {
public:
    explicit Database(leveldb_t *db) : db_(db) {}
    ~Database() override { leveldb_close(db_); }

    Status Put(const WriteOptions &options, const Slice &key, const Slice &value) override {
        const WriteHandle c = ForC(options);
        char *error = nullptr;
        leveldb_put(db_, c.get(), key.data(), key.size(), value.data(), value.size(), &error);
        return Status::Take(error);
    }

    Status Delete(const WriteOptions &options, const Slice &key) override {
        const WriteHandle c = ForC(options);
        char *error = nullptr;
        leveldb_delete(db_, c.get(), key.data(), key.size(), &error);
        return Status::Take(error);
    }

    Status Write(const WriteOptions &options, WriteBatch *updates) override {
        const WriteHandle c = ForC(options);
        char *error = nullptr;
        leveldb_write(db_, c.get(), updates == nullptr ? nullptr : updates->handle(), &error);
        return Status::Take(error);
    }

    Status Get(const ReadOptions &options, const Slice &key, std::string *value) override {
        const ReadHandle c = ForC(options);
        Taken taken{value, {}};
        char *error = nullptr;
        const uint8_t is_there = forebay_get(db_, c.get(), key.data(), key.size(), Take, &taken, &error);
        taken.carried.Rethrow();
        if (error != nullptr) {
            return Status::Take(error);
        }
        return is_there ? Status::OK() : Status::NotFound(Slice());
    }

    Iterator *NewIterator(const ReadOptions &options) override {
        const ReadHandle c = ForC(options);
        return new DbIterator(leveldb_create_iterator(db_, c.get()));
    }

    const Snapshot *GetSnapshot() override { return new Snapshot(leveldb_create_snapshot(db_)); }

    void ReleaseSnapshot(const Snapshot *snapshot) override {
        if (snapshot != nullptr) {
            leveldb_release_snapshot(db_, snapshot->handle());
            delete snapshot;
        }
    }

    bool GetProperty(const Slice &property, std::string *value) override {
        char *text = leveldb_property_value(db_, property.ToString().c_str());
        if (text == nullptr) {
            return false;
        }
        value->assign(text);
        leveldb_free(text);
        return true;
    }

    void GetApproximateSizes(const Range *range, int n, uint64_t *sizes) override {
        for (int at = 0; at < n; at++) {
            const char *start = range[at].start.data(), *limit = range[at].limit.data();
            const size_t start_length = range[at].start.size(), limit_length = range[at].limit.size();
            leveldb_approximate_sizes(db_, 1, &start, &start_length, &limit, &limit_length, sizes + at);
        }
    }

    void CompactRange(const Slice *begin, const Slice *end) override {
        leveldb_compact_range(db_, BytesOf(begin), LengthOf(begin), BytesOf(end), LengthOf(end));
    }

    std::vector<Status> MultiGet(const ReadOptions &options, const std::vector<Slice> &keys,
                                 std::vector<std::string> *values) override {
        const ReadHandle c = ForC(options);
        const size_t count = keys.size();
        std::vector<const char *> starts(count);
        std::vector<size_t> lengths(count), found_lengths(count);
        std::vector<char *> found(count);
        for (size_t at = 0; at < count; at++) {
            starts[at] = keys[at].data();
            lengths[at] = keys[at].size();
        }
        char *error = nullptr;
        forebay_multi_get(db_, c.get(), count, starts.data(), lengths.data(), found.data(), found_lengths.data(),
                          &error);
        const Status failed = Status::Take(error);
        std::vector<Status> statuses(count, failed);
        values->assign(count, std::string());
        for (size_t at = 0; at < count && failed.ok(); at++) {
            if (found[at] == nullptr) {
                statuses[at] = Status::NotFound(Slice());
            } else {
                (*values)[at].assign(found[at], found_lengths[at]);
                leveldb_free(found[at]);
            }
        }
        return statuses;
    }

    Status Merge(const WriteOptions &options, const Slice &key, const Slice &operand) override {
        const WriteHandle c = ForC(options);
        char *error = nullptr;
        forebay_merge(db_, c.get(), key.data(), key.size(), operand.data(), operand.size(), &error);
        return Status::Take(error);
    }

    Status DeleteRange(const WriteOptions &options, const Slice &from, const Slice &to) override {
        const WriteHandle c = ForC(options);
        char *error = nullptr;
        forebay_delete_range(db_, c.get(), from.data(), from.size(), to.data(), to.size(), &error);
        return Status::Take(error);
    }

    Status NewRequests(const Slice &prefix, Requests **requests, uint64_t lifetime_ms) override {
        char *error = nullptr;
        forebay_requests_t *made =
            forebay_requests_create(db_, prefix.data(), prefix.size(), lifetime_ms, &error);
        *requests = made == nullptr ? nullptr : new Table(made);
        return Status::Take(error);
    }

    Status Flush() override {
        char *error = nullptr;
        forebay_flush(db_, &error);
        return Status::Take(error);
    }

    Status Close() override {
        char *error = nullptr;
        forebay_close(db_, &error);
        db_ = nullptr;
        return Status::Take(error);
    }

private:
    struct Taken {
        std::string *value;
        Carried carried;
    };

    static void Take(void *state, const char *value, size_t length) {
        Taken *taken = static_cast<Taken *>(state);
        taken->carried.Run([&] { taken->value->assign(value, length); });
    }

    leveldb_t *db_;
};

}  // namespace detail

inline Status DB::Open(const Options &options, const std::string &name, DB **db) {
    *db = nullptr;
    Status status;
    const detail::OptionsHandle c = detail::ForC(options, &status);
    if (!status.ok()) {
        return status;
    }
    char *error = nullptr;
    leveldb_t *opened = leveldb_open(c.get(), name.c_str(), &error);
    if (opened != nullptr) {
        *db = new detail::Database(opened);
    }
    return Status::Take(error);
}

// Drops a database and its data. A missing database is no error.
inline Status DestroyDB(const std::string &name, const Options &options) {
    Status status;
    const detail::OptionsHandle c = detail::ForC(options, &status);
    if (!status.ok()) {
        return status;
    }
    char *error = nullptr;
    leveldb_destroy_db(c.get(), name.c_str(), &error);
    return Status::Take(error);
}

// Opens and closes an existing database, which recovers what can be recovered.
inline Status RepairDB(const std::string &name, const Options &options) {
    Status status;
    const detail::OptionsHandle c = detail::ForC(options, &status);
    if (!status.ok()) {
        return status;
    }
    char *error = nullptr;
    leveldb_repair_db(c.get(), name.c_str(), &error);
    return Status::Take(error);
}

}  // namespace forebay

#endif
