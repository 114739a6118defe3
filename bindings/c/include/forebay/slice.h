// Bytes that are stored elsewhere.
#ifndef FOREBAY_SLICE_H
#define FOREBAY_SLICE_H

#include <cassert>
#include <cstddef>
#include <cstring>
#include <string>

namespace forebay {

// A pointer and a length. The program that makes a slice must keep the bytes.
class Slice {
public:
    Slice() : data_(""), size_(0) {}
    Slice(const char *data, size_t size) : data_(data), size_(size) {}
    Slice(const std::string &text) : data_(text.data()), size_(text.size()) {}  // NOLINT: implicit, as in LevelDB
    Slice(const char *text) : data_(text), size_(std::strlen(text)) {}          // NOLINT: the same

    const char *data() const { return data_; }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    const char *begin() const { return data_; }
    const char *end() const { return data_ + size_; }

    char operator[](size_t at) const {
        assert(at < size_);
        return data_[at];
    }

    void clear() { *this = Slice(); }

    void remove_prefix(size_t length) {
        assert(length <= size_);
        data_ += length;
        size_ -= length;
    }

    std::string ToString() const { return std::string(data_, size_); }

    // Below, at or above zero: this is before, equal to or after `other`, byte by byte.
    int compare(const Slice &other) const {
        const size_t common = size_ < other.size_ ? size_ : other.size_;
        const int order = common == 0 ? 0 : std::memcmp(data_, other.data_, common);
        return order != 0 ? order : (size_ > other.size_) - (size_ < other.size_);
    }

    bool starts_with(const Slice &prefix) const {
        return size_ >= prefix.size_ && Slice(data_, prefix.size_).compare(prefix) == 0;
    }

private:
    const char *data_;
    size_t size_;
};

inline bool operator==(const Slice &a, const Slice &b) { return a.compare(b) == 0; }
inline bool operator!=(const Slice &a, const Slice &b) { return !(a == b); }

}  // namespace forebay

#endif
