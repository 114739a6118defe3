"""An ordered map from bytes to bytes, in a directory or on memory nodes of other processes."""

import atexit
import os

from . import _interpreter  # Refuses before the extension module is loaded.
from ._errors import (
    AccessDeniedError,
    AlreadyExistsError,
    BusyError,
    ClosedError,
    ConflictError,
    CorruptError,
    Error,
    FencedError,
    FullError,
    InvalidError,
    IoError,
    NotFoundError,
    TimedOutError,
    UnavailableError,
    UnsupportedError,
)
from ._forebay import (
    Answer,
    Batch,
    Database,
    Entries,
    Requests,
    Snapshot,
    __version__,
    _forked,
    _sync_open,
    destroy,
    open,
)

__all__ = [
    "AccessDeniedError",
    "AlreadyExistsError",
    "Answer",
    "Batch",
    "BusyError",
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "Database",
    "Entries",
    "Error",
    "FencedError",
    "FullError",
    "InvalidError",
    "IoError",
    "NotFoundError",
    "Requests",
    "Snapshot",
    "TimedOutError",
    "UnavailableError",
    "UnsupportedError",
    "__version__",
    "destroy",
    "open",
]

del _interpreter
os.register_at_fork(after_in_child=_forked)
atexit.register(_sync_open)
