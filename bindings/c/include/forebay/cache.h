// Caches.
#ifndef FOREBAY_CACHE_H
#define FOREBAY_CACHE_H

#include <cstddef>

namespace forebay {

// A limit in bytes for the indexes of tables that this process keeps.
class Cache {
public:
    explicit Cache(size_t capacity) : capacity_(capacity) {}
    virtual ~Cache() = default;
    Cache(const Cache &) = delete;
    Cache &operator=(const Cache &) = delete;
    size_t capacity() const { return capacity_; }

private:
    size_t capacity_;
};

// A cache of this capacity, which the caller deletes.
inline Cache *NewLRUCache(size_t capacity) { return new Cache(capacity); }

}  // namespace forebay

#endif
