// For programs that include LevelDB's header of this name.
#ifndef FOREBAY_COMPAT_LEVELDB_OPTIONS_H
#define FOREBAY_COMPAT_LEVELDB_OPTIONS_H

#include <forebay/options.h>

namespace leveldb = forebay;

#endif
