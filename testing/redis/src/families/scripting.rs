//! Scripts.

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
