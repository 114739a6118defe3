"""Refuses to be imported in a subinterpreter.

The extension module's types belong to the interpreter that loads it first, and its callbacks take the main interpreter's lock: in
another one, a process may hang. The extension module cannot find out by itself in safe code.
"""

import importlib


def _is_main() -> bool:
    # The second name is that of Python before 3.13. If there is neither, there are no other interpreters.
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return bool(module.get_current() == module.get_main())
    return True


if not _is_main():
    raise ImportError(
        "forebay works in the main interpreter of a process alone, not in a subinterpreter: import it there"
        " (mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
    )
