// For programs that include LevelDB's header of this name.
#ifndef FOREBAY_COMPAT_LEVELDB_ENV_H
#define FOREBAY_COMPAT_LEVELDB_ENV_H

#include <forebay/env.h>

namespace leveldb = forebay;

#endif
