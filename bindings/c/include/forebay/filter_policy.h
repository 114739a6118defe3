// Filter policies.
#ifndef FOREBAY_FILTER_POLICY_H
#define FOREBAY_FILTER_POLICY_H

#include <forebay/slice.h>

#include <string>

namespace forebay {

// LevelDB asks a filter policy before it reads a block. Here the indexes of tables know which keys they do not have, so
// nothing asks.
class FilterPolicy {
public:
    virtual ~FilterPolicy() = default;
    virtual const char *Name() const = 0;
    virtual void CreateFilter(const Slice *keys, int n, std::string *dst) const = 0;
    virtual bool KeyMayMatch(const Slice &key, const Slice &filter) const = 0;
};

namespace detail {

class NoFilter final : public FilterPolicy {
public:
    const char *Name() const override { return "forebay.NoFilter"; }
    void CreateFilter(const Slice *, int, std::string *) const override {}
    bool KeyMayMatch(const Slice &, const Slice &) const override { return true; }
};

}  // namespace detail

// A policy that filters nothing, which the caller deletes.
inline const FilterPolicy *NewBloomFilterPolicy(int /* bits_per_key */) { return new detail::NoFilter(); }

}  // namespace forebay

#endif
