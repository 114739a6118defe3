// Options of databases, reads and writes.
#ifndef FOREBAY_OPTIONS_H
#define FOREBAY_OPTIONS_H

#include <forebay/comparator.h>
#include <forebay/slice.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace forebay {

class Cache;
class Env;
class FilterPolicy;
class Logger;
class Snapshot;

enum CompressionType { kNoCompression = 0x0, kSnappyCompression = 0x1, kZstdCompression = 0x2 };

// How a database is opened. Options marked with a star have no effect.
struct Options {
    // The order of keys: see Comparator.
    const Comparator *comparator = BytewiseComparator();
    bool create_if_missing = false;
    bool error_if_exists = false;
    bool paranoid_checks = false;  // * everything that is read is checked
    Env *env = nullptr;            // *
    Logger *info_log = nullptr;    // *
    // Bytes of a memtable; 0 is the engine's choice.
    size_t write_buffer_size = 0;
    int max_open_files = 1000;  // *
    // Limits the indexes of tables that this process keeps; without a cache, there is no limit.
    Cache *block_cache = nullptr;
    size_t block_size = 4 * 1024;     // *
    int block_restart_interval = 16;  // *
    // Record bytes of a table; 0 is the engine's choice.
    size_t max_file_size = 0;
    CompressionType compression = kNoCompression;  // *
    int zstd_compression_level = 1;                // *
    bool reuse_logs = false;                       // *
    const FilterPolicy *filter_policy = nullptr;   // *

    // Extensions that LevelDB does not have.

    // Memory that a database in a directory may take; 0 is the library's choice.
    uint64_t memory_bytes = 0;
    // Memory nodes of other processes: "tcp://host:port" or "shm:path", separated by commas. There a process that is killed
    // loses all writes without sync that are not flushed yet.
    std::string memory_nodes;
    // Key ranges with a tree of their own; 0 is as many as the database has, and 1 for a new one.
    size_t shards = 0;
    // Copies on as many memory nodes, all of which have a write before it returns; 0 is as many as the database has, and 1
    // for a new one. A database in a directory has 1.
    size_t copies = 0;
    // Where it is stored which memory nodes hold the copies: a path or a URL. It must outlive the memory nodes, and a
    // database that was created with it opens with it alone; it is also named to drop the database. Without one, more than
    // half of the nodes must be there.
    std::string copies_register;
    // Name of the merge operator of a new database: counter, append, append: and a separator, or last.
    std::string merge_operator;
};

struct ReadOptions {
    bool verify_checksums = false;  // * they always are
    bool fill_cache = true;         // *
    // The moment to read at; without one, now.
    const Snapshot *snapshot = nullptr;

    // What LevelDB does not have: the first key that an iterator shows, and the first key that it no longer shows.
    const Slice *lower_bound = nullptr;
    const Slice *upper_bound = nullptr;
};

struct WriteOptions {
    // The write is on the disk before the call returns, or with memory nodes in their memory.
    bool sync = false;
};

}  // namespace forebay

#endif
