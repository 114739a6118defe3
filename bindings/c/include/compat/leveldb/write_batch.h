// For programs that include LevelDB's header of this name.
#ifndef FOREBAY_COMPAT_LEVELDB_WRITE_BATCH_H
#define FOREBAY_COMPAT_LEVELDB_WRITE_BATCH_H

#include <forebay/write_batch.h>

namespace leveldb = forebay;

#endif
