// For programs that include LevelDB's header of this name.
#ifndef FOREBAY_COMPAT_LEVELDB_DB_H
#define FOREBAY_COMPAT_LEVELDB_DB_H

#include <forebay/db.h>

namespace leveldb = forebay;

#endif
