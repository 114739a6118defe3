// How a call ended.
#ifndef FOREBAY_STATUS_H
#define FOREBAY_STATUS_H

#include <forebay.h>
#include <forebay/slice.h>

#include <cstring>
#include <string>
#include <utility>

namespace forebay {

// Success, or an error of one of LevelDB's classes with a message. Errors of a database also have a kind, which says
// what to do.
class Status {
public:
    Status() : code_(kOk), kind_(0) {}

    static Status OK() { return Status(); }
    static Status NotFound(const Slice &message, const Slice &more = Slice()) {
        return Status(kNotFound, FOREBAY_ERROR_NOT_FOUND, message, more);
    }
    static Status Corruption(const Slice &message, const Slice &more = Slice()) {
        return Status(kCorruption, FOREBAY_ERROR_CORRUPT, message, more);
    }
    static Status NotSupported(const Slice &message, const Slice &more = Slice()) {
        return Status(kNotSupported, FOREBAY_ERROR_UNSUPPORTED, message, more);
    }
    static Status InvalidArgument(const Slice &message, const Slice &more = Slice()) {
        return Status(kInvalidArgument, FOREBAY_ERROR_INVALID, message, more);
    }
    static Status IOError(const Slice &message, const Slice &more = Slice()) {
        return Status(kIOError, FOREBAY_ERROR_IO, message, more);
    }

    bool ok() const { return code_ == kOk; }
    bool IsNotFound() const { return code_ == kNotFound; }
    bool IsCorruption() const { return code_ == kCorruption; }
    bool IsNotSupportedError() const { return code_ == kNotSupported; }
    bool IsInvalidArgument() const { return code_ == kInvalidArgument; }
    bool IsIOError() const { return code_ == kIOError; }

    // One of FOREBAY_ERROR_..., or 0 on success. LevelDB does not have this.
    int kind() const { return kind_; }

    std::string ToString() const { return ok() ? "OK" : Class(code_) + (": " + message_); }

    // Takes over the error of a C function; NULL is success.
    static Status Take(char *error) {
        if (error == nullptr) {
            return OK();
        }
        const int kind = forebay_error_kind();
        Status status(kIOError, kind, Slice(error), Slice());
        for (int code = kNotFound; code <= kIOError; code++) {
            const std::string begin = std::string(Class(static_cast<Code>(code))) + ": ";
            if (status.message_.compare(0, begin.size(), begin) == 0) {
                status.code_ = static_cast<Code>(code);
                status.message_.erase(0, begin.size());
                break;
            }
        }
        leveldb_free(error);
        return status;
    }

private:
    enum Code { kOk = 0, kNotFound, kCorruption, kNotSupported, kInvalidArgument, kIOError };

    Status(Code code, int kind, const Slice &message, const Slice &more)
        : code_(code), kind_(kind), message_(message.ToString()) {
        if (!more.empty()) {
            message_ += ": " + more.ToString();
        }
    }

    static const char *Class(Code code) {
        switch (code) {
            case kOk: return "OK";
            case kNotFound: return "NotFound";
            case kCorruption: return "Corruption";
            case kNotSupported: return "Not implemented";
            case kInvalidArgument: return "Invalid argument";
            case kIOError: break;
        }
        return "IO error";
    }

    Code code_;
    int kind_;
    std::string message_;
};

}  // namespace forebay

#endif
