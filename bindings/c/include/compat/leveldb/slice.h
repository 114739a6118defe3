// For programs that include LevelDB's header of this name.
#ifndef FOREBAY_COMPAT_LEVELDB_SLICE_H
#define FOREBAY_COMPAT_LEVELDB_SLICE_H

#include <forebay/slice.h>

namespace leveldb = forebay;

#endif
