// LevelDB's C++ interface, in the phases in which a program uses it. Everything here holds for LevelDB too: compiled
// with its headers and linked with it, the program passes.
#include <leveldb/cache.h>
#include <leveldb/comparator.h>
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/filter_policy.h>
#include <leveldb/iterator.h>
#include <leveldb/options.h>
#include <leveldb/slice.h>
#include <leveldb/status.h>
#include <leveldb/write_batch.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

static const char *phase = "";

static void start(const char *name) {
    phase = name;
    std::fprintf(stderr, "phase %s\n", name);
}

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            std::fprintf(stderr, "%s:%d: phase %s: not true: %s\n", __FILE__, __LINE__, phase, #condition);  \
            std::exit(1);                                                                                    \
        }                                                                                                    \
    } while (0)

#define CHECK_OK(expression)                                                                                 \
    do {                                                                                                     \
        const leveldb::Status ended = (expression);                                                          \
        if (!ended.ok()) {                                                                                   \
            std::fprintf(stderr, "%s:%d: phase %s: %s\n", __FILE__, __LINE__, phase, ended.ToString().c_str()); \
            std::exit(1);                                                                                    \
        }                                                                                                    \
    } while (0)

// The value of a key, or a text that says how the read ended.
static std::string get(leveldb::DB *db, const std::string &key,
                       const leveldb::ReadOptions &options = leveldb::ReadOptions()) {
    std::string value = "untouched";
    const leveldb::Status status = db->Get(options, key, &value);
    if (status.IsNotFound()) {
        CHECK(value == "untouched");
        return "(none)";
    }
    return status.ok() ? value : status.ToString();
}

class Seen : public leveldb::WriteBatch::Handler {
public:
    void Put(const leveldb::Slice &key, const leveldb::Slice &value) override {
        text += key.ToString() + "=" + value.ToString() + ";";
    }
    void Delete(const leveldb::Slice &key) override { text += "-" + key.ToString() + ";"; }
    std::string text;
};

static void slices() {
    start("slices");
    const std::string text = "text";
    leveldb::Slice slice(text);
    CHECK(slice.size() == 4 && slice[1] == 'e' && slice.ToString() == "text" && !slice.empty());
    CHECK(slice == leveldb::Slice("text") && slice != leveldb::Slice("test"));
    CHECK(slice.compare("test") > 0 && slice.compare("textual") < 0 && slice.compare("text") == 0);
    CHECK(leveldb::Slice("\xff", 1).compare("a") > 0 && leveldb::Slice().compare("") == 0);
    CHECK(slice.starts_with("te") && slice.starts_with("") && !slice.starts_with("texts"));
    slice.remove_prefix(2);
    CHECK(slice == "xt");
    slice.clear();
    CHECK(slice.empty());
}

static void statuses() {
    start("statuses");
    CHECK(leveldb::Status().ok() && leveldb::Status::OK().ToString() == "OK");
    const leveldb::Status status = leveldb::Status::NotFound("what", "more");
    CHECK(status.IsNotFound() && !status.ok() && status.ToString() == "NotFound: what: more");
    CHECK(leveldb::Status::Corruption("x").IsCorruption() && leveldb::Status::IOError("x").IsIOError());
    CHECK(leveldb::Status::InvalidArgument("x").IsInvalidArgument());
    CHECK(leveldb::Status::NotSupported("x").IsNotSupportedError());
    leveldb::Status copy = status;
    copy = leveldb::Status::OK();
    CHECK(copy.ok() && status.IsNotFound());
}

static void comparators() {
    start("comparators");
    const leveldb::Comparator *bytes = leveldb::BytewiseComparator();
    CHECK(std::string(bytes->Name()) == "leveldb.BytewiseComparator" && bytes == leveldb::BytewiseComparator());
    CHECK(bytes->Compare("a", "b") < 0 && bytes->Compare("b", "a") > 0 && bytes->Compare("a", "a") == 0);
    std::string key = "abc";
    bytes->FindShortestSeparator(&key, "abz");
    CHECK(bytes->Compare(key, "abc") >= 0 && bytes->Compare(key, "abz") < 0);
    key = "abc";
    bytes->FindShortSuccessor(&key);
    CHECK(bytes->Compare(key, "abc") >= 0);
}

static void batches() {
    start("batches");
    leveldb::WriteBatch batch, other;
    const size_t empty = batch.ApproximateSize();
    batch.Put("a", "1");
    batch.Delete("b");
    CHECK(batch.ApproximateSize() > empty);
    other.Put("c", "3");
    batch.Append(other);
    leveldb::WriteBatch copy = batch;
    batch.Clear();
    Seen seen, nothing;
    CHECK_OK(copy.Iterate(&seen));
    CHECK_OK(batch.Iterate(&nothing));
    CHECK(seen.text == "a=1;-b;c=3;" && nothing.text.empty() && batch.ApproximateSize() == empty);
    batch = copy;
    Seen again;
    CHECK_OK(batch.Iterate(&again));
    CHECK(again.text == seen.text);
}

static void empty_iterators() {
    start("iterators over nothing");
    std::unique_ptr<leveldb::Iterator> none(leveldb::NewEmptyIterator());
    none->SeekToFirst();
    CHECK(!none->Valid() && none->status().ok());
    std::unique_ptr<leveldb::Iterator> failed(leveldb::NewErrorIterator(leveldb::Status::Corruption("why")));
    failed->Seek("a");
    CHECK(!failed->Valid() && failed->status().IsCorruption());
}

static int cleanups = 0;

static void clean_up(void *first, void *second) {
    cleanups += *static_cast<int *>(first) + *static_cast<int *>(second);
}

int main(int argc, char **argv) {
    slices();
    statuses();
    comparators();
    batches();
    empty_iterators();

    std::string name;
    CHECK_OK(leveldb::Env::Default()->GetTestDirectory(&name));
    name += argc > 1 ? std::string("/") + argv[1] : "/cc_program";
    std::unique_ptr<leveldb::Cache> cache(leveldb::NewLRUCache(1 << 20));
    std::unique_ptr<const leveldb::FilterPolicy> policy(leveldb::NewBloomFilterPolicy(10));
    leveldb::Options options;
    options.block_cache = cache.get();
    options.filter_policy = policy.get();
    options.write_buffer_size = 1 << 20;
    options.env = leveldb::Env::Default();
    leveldb::WriteOptions synced;
    synced.sync = true;

    start("open");
    CHECK_OK(leveldb::DestroyDB(name, options));
    leveldb::DB *opened = nullptr;
    CHECK(leveldb::DB::Open(options, name, &opened).IsInvalidArgument() && opened == nullptr);
    options.create_if_missing = true;
    CHECK_OK(leveldb::DB::Open(options, name, &opened));
    std::unique_ptr<leveldb::DB> db(opened);
    CHECK(leveldb::DB::Open(options, name, &opened).IsIOError());

    start("put, get, delete");
    CHECK(get(db.get(), "foo") == "(none)");
    CHECK_OK(db->Put(leveldb::WriteOptions(), "foo", "v1"));
    CHECK(get(db.get(), "foo") == "v1");
    CHECK_OK(db->Put(synced, "bar", ""));
    CHECK(get(db.get(), "bar").empty());
    CHECK_OK(db->Delete(synced, "foo"));
    CHECK(get(db.get(), "foo") == "(none)");
    const std::string zeroes("a\0b", 3);
    CHECK_OK(db->Put(leveldb::WriteOptions(), zeroes, zeroes));
    CHECK(get(db.get(), zeroes) == zeroes);
    CHECK_OK(db->Delete(leveldb::WriteOptions(), zeroes));

    start("a batch, and a snapshot");
    leveldb::WriteBatch batch;
    for (int i = 0; i < 100; i++) {
        batch.Put("key" + std::to_string(i), "value" + std::to_string(i));
    }
    batch.Delete("bar");
    CHECK_OK(db->Write(leveldb::WriteOptions(), &batch));
    const leveldb::Snapshot *snapshot = db->GetSnapshot();
    CHECK_OK(db->Put(leveldb::WriteOptions(), "key7", "later"));
    leveldb::ReadOptions past;
    past.snapshot = snapshot;
    CHECK(get(db.get(), "key7", past) == "value7" && get(db.get(), "key7") == "later");
    CHECK(get(db.get(), "bar") == "(none)");

    start("iterators");
    {
        std::map<std::string, std::string> expected, found;
        for (int i = 0; i < 100; i++) {
            expected["key" + std::to_string(i)] = "value" + std::to_string(i);
        }
        std::unique_ptr<leveldb::Iterator> iterator(db->NewIterator(past));
        CHECK(!iterator->Valid());
        std::string before;
        for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next()) {
            CHECK(before < iterator->key().ToString());
            before = iterator->key().ToString();
            found[before] = iterator->value().ToString();
        }
        CHECK_OK(iterator->status());
        CHECK(found == expected);
        iterator->Seek("key5");
        CHECK(iterator->key() == "key5" && iterator->value() == "value5");
        iterator->Prev();
        CHECK(iterator->key() == "key49");
        iterator->SeekToLast();
        CHECK(iterator->key() == "key99");
        iterator->Next();
        CHECK(!iterator->Valid());
        int one = 1, two = 2;
        iterator->RegisterCleanup(clean_up, &one, &two);
        iterator->RegisterCleanup(clean_up, &two, &two);
        CHECK(cleanups == 0);
        iterator.reset();
        CHECK(cleanups == 7);
    }
    db->ReleaseSnapshot(snapshot);

    start("sizes, compaction, properties");
    uint32_t random = 1;
    for (int i = 0; i < 20000; i++) {
        std::string value;
        for (int j = 0; j < 100; j++) {
            random = random * 1664525 + 1013904223;
            value.push_back(static_cast<char>(random >> 24));
        }
        CHECK_OK(db->Put(leveldb::WriteOptions(), "size" + std::to_string(100000 + i), value));
    }
    const leveldb::Slice first("size"), last("sizf");
    db->CompactRange(&first, &last);
    db->CompactRange(nullptr, nullptr);
    const leveldb::Range ranges[2] = {leveldb::Range("size", "size110000"), leveldb::Range("t", "u")};
    uint64_t sizes[2] = {1, 1};
    db->GetApproximateSizes(ranges, 2, sizes);
    CHECK(sizes[0] > 800000 && sizes[0] < 2000000 && sizes[1] < 1000);
    std::string value;
    CHECK(db->GetProperty("leveldb.stats", &value) && !value.empty());
    CHECK(db->GetProperty("leveldb.approximate-memory-usage", &value) && std::stoull(value) > 0);
    CHECK(!db->GetProperty("leveldb.no-such-thing", &value));

    start("threads");
    {
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++) {
            threads.emplace_back([&db, t] {
                for (int i = 0; i < 500; i++) {
                    const std::string key = "thread" + std::to_string(t) + "-" + std::to_string(i);
                    CHECK_OK(db->Put(leveldb::WriteOptions(), key, key));
                    CHECK(get(db.get(), key) == key);
                }
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
    }

    start("repair, and open again");
    db.reset();
    CHECK_OK(leveldb::RepairDB(name, options));
    options.create_if_missing = false;
    CHECK_OK(leveldb::DB::Open(options, name, &opened));
    db.reset(opened);
    CHECK(get(db.get(), "key7") == "later" && get(db.get(), "thread3-499") == "thread3-499");
    db.reset();
    options.error_if_exists = true;
    CHECK(leveldb::DB::Open(options, name, &opened).IsInvalidArgument());
    options.error_if_exists = false;
    CHECK_OK(leveldb::DestroyDB(name, options));
    CHECK(leveldb::DB::Open(options, name, &opened).IsInvalidArgument());

    std::puts("passed");
    return 0;
}
