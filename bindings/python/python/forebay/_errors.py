"""Errors, by what the caller must do about them."""


class Error(Exception):
    """An operation failed. The class says what to do."""


class InvalidError(Error, ValueError):
    """The call is wrong: change its arguments, or open the database in this process. Nothing was done."""


class NotFoundError(Error):
    """The database does not exist."""


class AlreadyExistsError(Error):
    """The database exists already."""


class FullError(Error):
    """Memory is used up: free some or add some."""


class BusyError(Error):
    """Not now: the same call may succeed later."""


class UnavailableError(Error, ConnectionError):
    """A memory node is gone: open the database again. Whether the call took effect is unknown."""


class FencedError(Error):
    """Another process took the database over: stop."""


class AccessDeniedError(Error, PermissionError):
    """A memory node does not let this process in, or the system not into a directory."""


class CorruptError(Error):
    """The bytes that were read are not those that were written: restore."""


class TimedOutError(Error, TimeoutError):
    """The deadline passed. Whether the call took effect is unknown."""


class ClosedError(Error):
    """The database was closed."""


class IoError(Error, OSError):
    """The operating system refused."""


class UnsupportedError(Error, NotImplementedError):
    """This version cannot do it."""


class ConflictError(Error):
    """A condition of a batch does not hold any more: read again, and decide anew. Nothing was written."""
