// For programs that include LevelDB's header of this name.
#ifndef FOREBAY_COMPAT_LEVELDB_FILTER_POLICY_H
#define FOREBAY_COMPAT_LEVELDB_FILTER_POLICY_H

#include <forebay/filter_policy.h>

namespace leveldb = forebay;

#endif
