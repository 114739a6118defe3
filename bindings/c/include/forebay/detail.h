// What the headers share, and programs do not need.
#ifndef FOREBAY_DETAIL_H
#define FOREBAY_DETAIL_H

#include <forebay.h>
#include <forebay/options.h>

#include <exception>
#include <memory>
#include <utility>

namespace forebay {
namespace detail {

// Calls the C function that ends a handle.
template <typename T, void (*End)(T *)>
struct Ended {
    void operator()(T *handle) const { End(handle); }
};

using OptionsHandle = std::unique_ptr<leveldb_options_t, Ended<leveldb_options_t, leveldb_options_destroy>>;
using ReadHandle = std::unique_ptr<leveldb_readoptions_t, Ended<leveldb_readoptions_t, leveldb_readoptions_destroy>>;
using WriteHandle =
    std::unique_ptr<leveldb_writeoptions_t, Ended<leveldb_writeoptions_t, leveldb_writeoptions_destroy>>;
using RequestsHandle = std::unique_ptr<forebay_requests_t, Ended<forebay_requests_t, forebay_requests_destroy>>;
using BatchHandle = std::unique_ptr<leveldb_writebatch_t, Ended<leveldb_writebatch_t, leveldb_writebatch_destroy>>;

// Null, which means the defaults, if nothing else is asked for.
inline WriteHandle ForC(const WriteOptions &options) {
    if (!options.sync) {
        return nullptr;
    }
    WriteHandle made(leveldb_writeoptions_create());
    leveldb_writeoptions_set_sync(made.get(), 1);
    return made;
}

// Carries an exception past a function of C, which must not see one.
class Carried {
public:
    template <typename F>
    void Run(F &&body) {
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
        if (thrown_ != nullptr) {
            return;
        }
        try {
            body();
        } catch (...) {
            thrown_ = std::current_exception();
        }
#else
        body();
#endif
    }

    void Rethrow() {
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
        if (thrown_ != nullptr) {
            std::rethrow_exception(thrown_);
        }
#endif
    }

private:
    std::exception_ptr thrown_;
};

}  // namespace detail
}  // namespace forebay

#endif
