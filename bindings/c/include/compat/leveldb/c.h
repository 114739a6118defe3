/* For programs that include LevelDB's C interface. */
#ifndef FOREBAY_COMPAT_LEVELDB_C_H
#define FOREBAY_COMPAT_LEVELDB_C_H

#include <forebay.h>

#endif
