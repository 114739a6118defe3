// Write batches.
#ifndef FOREBAY_WRITE_BATCH_H
#define FOREBAY_WRITE_BATCH_H

#include <forebay.h>
#include <forebay/detail.h>
#include <forebay/slice.h>
#include <forebay/status.h>

#include <cstddef>

namespace forebay {

// Writes that become visible together, in the order in which they were added.
class WriteBatch {
public:
    // What Iterate calls for each write.
    class Handler {
    public:
        virtual ~Handler() = default;
        virtual void Put(const Slice &key, const Slice &value) = 0;
        virtual void Delete(const Slice &key) = 0;
    };

    WriteBatch() : batch_(leveldb_writebatch_create()) {}
    WriteBatch(const WriteBatch &other) : WriteBatch() { Append(other); }
    WriteBatch &operator=(const WriteBatch &other) {
        if (this != &other) {
            Clear();
            Append(other);
        }
        return *this;
    }
    ~WriteBatch() = default;

    void Put(const Slice &key, const Slice &value) {
        leveldb_writebatch_put(batch_.get(), key.data(), key.size(), value.data(), value.size());
        Count(key.size() + value.size());
    }

    void Delete(const Slice &key) {
        leveldb_writebatch_delete(batch_.get(), key.data(), key.size());
        Count(key.size());
    }

    // Removes the keys from `from` to before `to`. LevelDB does not have this.
    void DeleteRange(const Slice &from, const Slice &to) {
        forebay_writebatch_delete_range(batch_.get(), from.data(), from.size(), to.data(), to.size());
        Count(from.size() + to.size());
    }

    // Adds an operand. The database's merge operator makes the key's value from the operands. LevelDB does not have
    // this.
    void Merge(const Slice &key, const Slice &operand) {
        forebay_writebatch_merge(batch_.get(), key.data(), key.size(), operand.data(), operand.size());
        Count(key.size() + operand.size());
    }

    void Clear() {
        leveldb_writebatch_clear(batch_.get());
        size_ = 0;
    }

    void Append(const WriteBatch &source) {
        leveldb_writebatch_append(batch_.get(), source.batch_.get());
        size_ += source.size_;
    }

    // Bytes of keys and values, and some for each write.
    size_t ApproximateSize() const { return size_; }

    // Passes the writes to `handler`, in order, up to the first range deletion or operand, which a handler cannot take:
    // NotSupported. If a write could not be added, none is passed.
    Status Iterate(Handler *handler) const {
        Passed passed{handler, {}};
        char *error = nullptr;
        forebay_writebatch_iterate(batch_.get(), &passed, PassPut, PassDelete, &error);
        const Status ended = Status::Take(error);
        passed.carried.Rethrow();
        return ended;
    }

    leveldb_writebatch_t *handle() const { return batch_.get(); }

private:
    struct Passed {
        Handler *handler;
        detail::Carried carried;
    };

    static void PassPut(void *state, const char *key, size_t keylen, const char *value, size_t vallen) {
        Passed *passed = static_cast<Passed *>(state);
        passed->carried.Run([&] { passed->handler->Put(Slice(key, keylen), Slice(value, vallen)); });
    }

    static void PassDelete(void *state, const char *key, size_t keylen) {
        Passed *passed = static_cast<Passed *>(state);
        passed->carried.Run([&] { passed->handler->Delete(Slice(key, keylen)); });
    }

    void Count(size_t bytes) { size_ += bytes + 16; }

    detail::BatchHandle batch_;
    size_t size_ = 0;
};

}  // namespace forebay

#endif
