// For programs that include LevelDB's header of this name.
#ifndef FOREBAY_COMPAT_LEVELDB_STATUS_H
#define FOREBAY_COMPAT_LEVELDB_STATUS_H

#include <forebay/status.h>

namespace leveldb = forebay;

#endif
