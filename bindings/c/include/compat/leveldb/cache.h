// For programs that include LevelDB's header of this name.
#ifndef FOREBAY_COMPAT_LEVELDB_CACHE_H
#define FOREBAY_COMPAT_LEVELDB_CACHE_H

#include <forebay/cache.h>

namespace leveldb = forebay;

#endif
