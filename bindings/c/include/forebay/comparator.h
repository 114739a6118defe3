// Orders of keys.
#ifndef FOREBAY_COMPARATOR_H
#define FOREBAY_COMPARATOR_H

#include <forebay/slice.h>

#include <string>

namespace forebay {

// An order of keys. A database has one of two, and the comparator's name says which: that of BytewiseComparator() or
// that of ReverseBytewiseComparator(). DB::Open refuses all others (NotSupported), because memory nodes also compare
// keys and cannot run code of this process. The database does not call Compare.
class Comparator {
public:
    virtual ~Comparator() = default;
    virtual int Compare(const Slice &a, const Slice &b) const = 0;
    virtual const char *Name() const = 0;
    virtual void FindShortestSeparator(std::string *start, const Slice &limit) const = 0;
    virtual void FindShortSuccessor(std::string *key) const = 0;
};

namespace detail {

class ByBytes final : public Comparator {
public:
    explicit ByBytes(bool is_reverse) : is_reverse_(is_reverse) {}
    int Compare(const Slice &a, const Slice &b) const override { return is_reverse_ ? b.compare(a) : a.compare(b); }
    const char *Name() const override {
        return is_reverse_ ? "forebay.ReverseBytewiseComparator" : "leveldb.BytewiseComparator";
    }
    // A key separates itself from what follows it, and is its own successor.
    void FindShortestSeparator(std::string *, const Slice &) const override {}
    void FindShortSuccessor(std::string *) const override {}

private:
    bool is_reverse_;
};

}  // namespace detail

// By unsigned bytes, shorter first. It lives as long as the program.
inline const Comparator *BytewiseComparator() {
    static const detail::ByBytes comparator(false);
    return &comparator;
}

// The reverse of BytewiseComparator().
inline const Comparator *ReverseBytewiseComparator() {
    static const detail::ByBytes comparator(true);
    return &comparator;
}

}  // namespace forebay

#endif
