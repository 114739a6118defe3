// The environment.
#ifndef FOREBAY_ENV_H
#define FOREBAY_ENV_H

#include <forebay.h>
#include <forebay/status.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace forebay {

// A logger, which options may name. Nothing is written to it.
class Logger {
public:
    virtual ~Logger() = default;
};

// The only environment. A database opens no files through it.
class Env {
public:
    virtual ~Env() = default;

    static Env *Default() {
        static Env env;
        return &env;
    }

    // A folder for tests, which exists.
    virtual Status GetTestDirectory(std::string *path) {
        leveldb_env_t *env = leveldb_create_default_env();
        char *folder = leveldb_env_get_test_directory(env);
        leveldb_env_destroy(env);
        if (folder == nullptr) {
            return Status::IOError("there is no folder for tests");
        }
        path->assign(folder);
        leveldb_free(folder);
        return Status::OK();
    }

    // Microseconds since some moment.
    virtual uint64_t NowMicros() {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
    }
};

}  // namespace forebay

#endif
