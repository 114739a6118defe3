// Iterators.
#ifndef FOREBAY_ITERATOR_H
#define FOREBAY_ITERATOR_H

#include <forebay.h>
#include <forebay/slice.h>
#include <forebay/status.h>

#include <functional>
#include <utility>
#include <vector>

namespace forebay {

// Goes over keys and values in order, as of one moment. A new iterator has no position: seek first. What key() and
// value() return stays until the iterator moves.
class Iterator {
public:
    using CleanupFunction = void (*)(void *first, void *second);

    Iterator() = default;
    Iterator(const Iterator &) = delete;
    Iterator &operator=(const Iterator &) = delete;

    virtual ~Iterator() {
        for (const auto &cleanup : cleanups_) {
            cleanup();
        }
    }

    virtual bool Valid() const = 0;
    virtual void SeekToFirst() = 0;
    virtual void SeekToLast() = 0;
    // Goes to the first key that is not before `target`.
    virtual void Seek(const Slice &target) = 0;
    virtual void Next() = 0;
    virtual void Prev() = 0;
    virtual Slice key() const = 0;
    virtual Slice value() const = 0;
    virtual Status status() const = 0;

    // Calls `function` when the iterator is deleted.
    void RegisterCleanup(CleanupFunction function, void *first, void *second) {
        cleanups_.push_back([=] { function(first, second); });
    }

private:
    std::vector<std::function<void()>> cleanups_;
};

namespace detail {

class DbIterator final : public Iterator {
public:
    explicit DbIterator(leveldb_iterator_t *iterator) : iterator_(iterator) {}
    ~DbIterator() override { leveldb_iter_destroy(iterator_); }

    bool Valid() const override { return leveldb_iter_valid(iterator_) != 0; }
    void SeekToFirst() override { leveldb_iter_seek_to_first(iterator_); }
    void SeekToLast() override { leveldb_iter_seek_to_last(iterator_); }
    void Seek(const Slice &target) override { leveldb_iter_seek(iterator_, target.data(), target.size()); }
    void Next() override { leveldb_iter_next(iterator_); }
    void Prev() override { leveldb_iter_prev(iterator_); }

    Slice key() const override {
        size_t length = 0;
        const char *key = leveldb_iter_key(iterator_, &length);
        return key == nullptr ? Slice() : Slice(key, length);
    }

    Slice value() const override {
        size_t length = 0;
        const char *value = leveldb_iter_value(iterator_, &length);
        return value == nullptr ? Slice() : Slice(value, length);
    }

    Status status() const override {
        char *error = nullptr;
        leveldb_iter_get_error(iterator_, &error);
        return Status::Take(error);
    }

private:
    leveldb_iterator_t *iterator_;
};

class NoIterator final : public Iterator {
public:
    explicit NoIterator(Status status) : status_(std::move(status)) {}
    bool Valid() const override { return false; }
    void SeekToFirst() override {}
    void SeekToLast() override {}
    void Seek(const Slice &) override {}
    void Next() override {}
    void Prev() override {}
    Slice key() const override { return Slice(); }
    Slice value() const override { return Slice(); }
    Status status() const override { return status_; }

private:
    Status status_;
};

}  // namespace detail

// Iterators over nothing, which the caller deletes.
inline Iterator *NewEmptyIterator() { return new detail::NoIterator(Status::OK()); }
inline Iterator *NewErrorIterator(const Status &status) { return new detail::NoIterator(status); }

}  // namespace forebay

#endif
