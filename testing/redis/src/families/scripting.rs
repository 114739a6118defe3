//! Scripts and functions.

pub(super) const TABLE: &str = "
    = 100 EVAL {script} 1 {k} {v} {i}
    = 20  EVAL {script} 0
    = 20  EVAL_RO {script} 1 {k} {v} {i}
    = 10  SCRIPT LOAD {script}
    = 5   SCRIPT LOAD (x|)
    = 10  EVALSHA (e0e1f9fabfc9d4800c877a703b823ac0578ff8db|E0E1F9FABFC9D4800C877A703B823ac0578ff8db|nosuch) (0|1 a|-1|x|5)
    = 5   EVALSHA_RO (e0e1f9fabfc9d4800c877a703b823ac0578ff8db|nosuch) 0
    = 5   EVAL (a|b) (0|1 a|-1|x|5)
    = 5   SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db nosuch
    = 1   SCRIPT FLUSH (SYNC|ASYNC|x|)
    = 2   (SCRIPT KILL|SCRIPT NOSUCH|SCRIPT)
    exec 5 MULTI
    exec 5 EXEC
";

pub(super) const FUNCTIONS: &str = "
    = 50 FUNCTION LOAD {lib}
    = 50 FUNCTION LOAD REPLACE {lib}
    = 2  FUNCTION LOAD (x|REPLACE REPLACE|REPLACE) {lib}
    = 80 FCALL (echo|set|get|incr|fail|other|count|globals|maps|packs|quoted|nosuch|Echo) 1 {k} {v} {i}
    = 20 FCALL (echo|Set|get|nosuch) (0|1 a|-1|x|5|2 a b c)
    = 20 FCALL_RO (echo|set|get|incr|nosuch) 1 {k} {v}
    ~ 10 FUNCTION LIST (WITHCODE|)
    ~ 5  FUNCTION LIST LIBRARYNAME (E*|none|*o*)
    ~ 2  FUNCTION LIST (x|LIBRARYNAME|WITHCODE WITHCODE|LIBRARYNAME a LIBRARYNAME b)
    = 10 FUNCTION DELETE (echo|set|get|nosuch|ECHO)
    = 2  FUNCTION FLUSH (SYNC|ASYNC|x|SYNC SYNC|)
    = 5  FUNCTION STATS
    = 2  (FUNCTION KILL|FUNCTION NOSUCH|FUNCTION)
    any 2 FUNCTION DUMP
    = 2  FUNCTION RESTORE (x|) (APPEND|REPLACE|FLUSH|x|)
";
