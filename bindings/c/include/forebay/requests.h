// Writes that may be tried again. LevelDB does not have these.
#ifndef FOREBAY_REQUESTS_H
#define FOREBAY_REQUESTS_H

#include <forebay.h>
#include <forebay/detail.h>
#include <forebay/options.h>
#include <forebay/slice.h>
#include <forebay/status.h>
#include <forebay/write_batch.h>

#include <cstdint>
#include <memory>
#include <string>

namespace forebay {

// The answer to a request.
struct Answer {
    // The result that the written try gave.
    std::string result;
    // Whether an earlier try was written, and this one wrote nothing.
    bool is_repeated = false;
};

// A table of the answers to clients' requests, which any number of threads may use. A write that names its request takes
// effect once, however often it is tried, and whichever process has the database open. DB::NewRequests makes it.
class Requests {
public:
    Requests() = default;
    Requests(const Requests &) = delete;
    Requests &operator=(const Requests &) = delete;
    virtual ~Requests() = default;

    // Writes `updates` as request `number` of `client`, or finds that it was written. A client has a name of 1 to 255 bytes and
    // numbers that grow; InvalidArgument for a number before that of a written request. `answer` may be null.
    virtual Status Write(const WriteOptions &options, const Slice &client, uint64_t number, WriteBatch *updates,
                         const Slice &result, Answer *answer) = 0;
};

namespace detail {

class Table final : public Requests {
public:
    explicit Table(forebay_requests_t *requests) : requests_(requests) {}

    Status Write(const WriteOptions &options, const Slice &client, uint64_t number, WriteBatch *updates,
                 const Slice &result, Answer *answer) override {
        const WriteHandle c = ForC(options);
        char *error = nullptr;
        uint8_t is_repeated = 0;
        size_t length = 0;
        const std::unique_ptr<char, Freed> found(forebay_requests_write(
            requests_.get(), c.get(), client.data(), client.size(), number,
            updates == nullptr ? nullptr : updates->handle(), result.data(), result.size(), &is_repeated, &length, &error));
        if (found != nullptr && answer != nullptr) {
            answer->result.assign(found.get(), length);
            answer->is_repeated = is_repeated != 0;
        }
        return Status::Take(error);
    }

private:
    struct Freed {
        void operator()(char *bytes) const { leveldb_free(bytes); }
    };

    RequestsHandle requests_;
};

}  // namespace detail
}  // namespace forebay

#endif
