// For programs that include LevelDB's header of this name.
#ifndef FOREBAY_COMPAT_LEVELDB_COMPARATOR_H
#define FOREBAY_COMPAT_LEVELDB_COMPARATOR_H

#include <forebay/comparator.h>

namespace leveldb = forebay;

#endif
