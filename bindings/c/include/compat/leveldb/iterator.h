// For programs that include LevelDB's header of this name.
#ifndef FOREBAY_COMPAT_LEVELDB_ITERATOR_H
#define FOREBAY_COMPAT_LEVELDB_ITERATOR_H

#include <forebay/iterator.h>

namespace leveldb = forebay;

#endif
