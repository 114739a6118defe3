// What Forebay's C++ headers have and LevelDB's do not, and exceptions that pass through C.
#include <forebay/db.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                             \
        }                                                                             \
    } while (0)

class Thrower : public forebay::WriteBatch::Handler {
public:
    void Put(const forebay::Slice &, const forebay::Slice &) override {
        calls++;
        throw std::runtime_error("by hand");
    }
    void Delete(const forebay::Slice &) override { calls++; }
    int calls = 0;
};

class Counter : public forebay::WriteBatch::Handler {
public:
    void Put(const forebay::Slice &, const forebay::Slice &) override { calls++; }
    void Delete(const forebay::Slice &) override { calls++; }
    int calls = 0;
};

class OwnOrder : public forebay::Comparator {
public:
    int Compare(const forebay::Slice &a, const forebay::Slice &b) const override { return a.compare(b); }
    const char *Name() const override { return "order of the test"; }
    void FindShortestSeparator(std::string *, const forebay::Slice &) const override {}
    void FindShortSuccessor(std::string *) const override {}
};

class Nameless : public OwnOrder {
public:
    const char *Name() const override { throw std::runtime_error("by hand"); }
};

int main() {
    const std::string name = "extensions-of-cc";
    forebay::Options options;
    options.create_if_missing = true;
    options.memory_bytes = 256 << 20;
    forebay::DB *opened = nullptr;

    OwnOrder order;
    options.comparator = &order;
    forebay::Status status = forebay::DB::Open(options, name, &opened);
    CHECK(status.IsNotSupportedError() && status.kind() == FOREBAY_ERROR_UNSUPPORTED && opened == nullptr);

    Nameless nameless;
    options.comparator = &nameless;
    bool is_caught = false;
    try {
        (void)forebay::DB::Open(options, name, &opened);
    } catch (const std::runtime_error &) {
        is_caught = true;
    }
    CHECK(is_caught && opened == nullptr);

    options.comparator = forebay::ReverseBytewiseComparator();
    options.merge_operator = "append";
    CHECK(forebay::DB::Open(options, name, &opened).ok());
    std::unique_ptr<forebay::DB> db(opened);
    const forebay::WriteOptions write;
    for (const char *key : {"a", "b", "c", "d"}) {
        CHECK(db->Put(write, key, std::string("value of ") + key).ok());
    }
    CHECK(db->Merge(write, "m", "1").ok());
    CHECK(db->Flush().ok());
    std::vector<std::string> values;
    const std::vector<forebay::Status> statuses = db->MultiGet(forebay::ReadOptions(), {"d", "x", "a"}, &values);
    CHECK(statuses[0].ok() && statuses[1].IsNotFound() && statuses[2].ok());
    CHECK(values[0] == "value of d" && values[1].empty() && values[2] == "value of a");

    const forebay::Slice lower("c"), upper("a");
    forebay::ReadOptions bounded;
    bounded.lower_bound = &lower;
    bounded.upper_bound = &upper;
    {
        std::string keys;
        std::unique_ptr<forebay::Iterator> iterator(db->NewIterator(bounded));
        for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next()) {
            keys += iterator->key().ToString();
        }
        CHECK(keys == "cb" && iterator->status().ok());
    }
    const forebay::Slice nothing(nullptr, 0);
    forebay::ReadOptions from_the_empty_key;
    from_the_empty_key.lower_bound = &nothing;
    {
        // In the reverse order the empty key is the last one.
        std::unique_ptr<forebay::Iterator> iterator(db->NewIterator(from_the_empty_key));
        iterator->SeekToFirst();
        CHECK(!iterator->Valid() && iterator->status().ok());
    }
    CHECK(db->DeleteRange(write, "d", "b").ok());
    std::string value;
    CHECK(db->Get(forebay::ReadOptions(), "c", &value).IsNotFound());
    CHECK(db->Get(forebay::ReadOptions(), "b", &value).ok() && value == "value of b");
    status = db->DeleteRange(write, "a", "b");
    CHECK(status.IsInvalidArgument() && status.kind() == FOREBAY_ERROR_INVALID);

    forebay::WriteBatch batch;
    batch.Put("k", "v");
    batch.Delete("k");
    Thrower thrower;
    is_caught = false;
    try {
        (void)batch.Iterate(&thrower);
    } catch (const std::runtime_error &) {
        is_caught = true;
    }
    CHECK(is_caught && thrower.calls == 1);
    Counter counter;
    batch.DeleteRange("a", "a");  // This removes nothing.
    CHECK(batch.Iterate(&counter).ok() && counter.calls == 2);
    batch.Merge("m", "2");
    batch.DeleteRange("b", "a");
    CHECK(batch.Iterate(&counter).IsNotSupportedError() && counter.calls == 4);
    forebay::WriteBatch lacking;
    lacking.Put("k", "v");
    lacking.Put(forebay::Slice(nullptr, 3), "v");
    const forebay::WriteBatch copy = lacking;
    const forebay::WriteBatch *const both[] = {&lacking, &copy};
    for (const forebay::WriteBatch *wrong : both) {
        status = wrong->Iterate(&counter);
        CHECK(status.IsInvalidArgument() && status.kind() == FOREBAY_ERROR_INVALID && counter.calls == 4);
    }
    lacking.Clear();
    CHECK(lacking.Iterate(&counter).ok() && counter.calls == 4);
    CHECK(db->Write(write, &batch).ok());
    CHECK(db->Get(forebay::ReadOptions(), "m", &value).ok() && value == "12");
    CHECK(db->Write(write, nullptr).IsInvalidArgument());

    forebay::Requests *made = nullptr;
    CHECK(db->NewRequests("r/", &made).ok());
    const std::unique_ptr<forebay::Requests> requests(made);
    forebay::WriteBatch counted;
    counted.Merge("n", "1");
    forebay::Answer answer;
    CHECK(requests->Write(write, "client", 7, &counted, "first", &answer).ok());
    CHECK(answer.result == "first" && !answer.is_repeated);
    CHECK(requests->Write(write, "client", 7, &counted, "second", &answer).ok());
    CHECK(answer.result == "first" && answer.is_repeated);
    CHECK(requests->Write(write, "client", 7, &counted, "", nullptr).ok());
    CHECK(db->Get(forebay::ReadOptions(), "n", &value).ok() && value == "1");
    status = requests->Write(write, "client", 6, &counted, "", &answer);
    CHECK(status.IsInvalidArgument() && answer.result == "first");
    CHECK(requests->Write(write, "client", 8, nullptr, "", &answer).IsInvalidArgument());
    CHECK(db->Close().ok());
    CHECK(db->Put(write, "a", "after the end").IsInvalidArgument());
    CHECK(requests->Write(write, "client", 7, &counted, "", &answer).kind() == FOREBAY_ERROR_CLOSED);
    CHECK(db->NewRequests("r/", &made).IsInvalidArgument() && made == nullptr);
    db.reset();

    options.memory_nodes = "nonsense";
    CHECK(forebay::DB::Open(options, name, &opened).IsInvalidArgument());
    options.memory_nodes.clear();
    CHECK(forebay::DestroyDB(name, options).ok());
    std::puts("passed");
    return 0;
}
