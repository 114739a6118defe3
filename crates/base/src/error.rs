//! Kinds of errors, by the action that the caller must take.

use std::{fmt, io};

/// The action that the caller of a failed operation must take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call is wrong: change its arguments. Nothing was done.
    Invalid,
    /// The named object does not exist.
    NotFound,
    /// The object to be created exists already.
    AlreadyExists,
    /// Memory (or another bounded resource) is used up: free some or add some.
    Full,
    /// Not now: the same call may succeed later.
    Busy,
    /// The peer is gone: reconnect. Whether the operation took effect is unknown.
    Unavailable,
    /// Another owner took over with a newer epoch: stop.
    Fenced,
    /// The access key is forged, revoked, stale, or lacks the right.
    AccessDenied,
    /// The bytes read are not the bytes written: restore.
    Corrupt,
    /// The deadline passed. Whether the operation took effect is unknown.
    TimedOut,
    /// The object was closed by this process.
    Closed,
    /// The operating system refused.
    Io,
    /// This back end, build or version cannot do it.
    Unsupported,
    /// A condition of the call no longer holds: read again, and decide anew. Nothing was done.
    Conflict,
}

impl ErrorKind {
    /// The kind's name in logs and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::Full => "full",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::Fenced => "fenced",
            Self::AccessDenied => "access denied",
            Self::Corrupt => "corrupt",
            Self::TimedOut => "timed out",
            Self::Closed => "closed",
            Self::Io => "i/o",
            Self::Unsupported => "unsupported",
            Self::Conflict => "conflict",
        }
    }

    /// Number on the wire (`docs/formats/error-kind.md`). Zero is success, which is not a kind.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Invalid => 1,
            Self::NotFound => 2,
            Self::AlreadyExists => 3,
            Self::Full => 4,
            Self::Busy => 5,
            Self::Unavailable => 6,
            Self::Fenced => 7,
            Self::AccessDenied => 8,
            Self::Corrupt => 9,
            Self::TimedOut => 10,
            Self::Closed => 11,
            Self::Io => 12,
            Self::Unsupported => 13,
            Self::Conflict => 14,
        }
    }

    /// The kind whose [`code`](Self::code) is `code`.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Invalid,
            2 => Self::NotFound,
            3 => Self::AlreadyExists,
            4 => Self::Full,
            5 => Self::Busy,
            6 => Self::Unavailable,
            7 => Self::Fenced,
            8 => Self::AccessDenied,
            9 => Self::Corrupt,
            10 => Self::TimedOut,
            11 => Self::Closed,
            12 => Self::Io,
            13 => Self::Unsupported,
            14 => Self::Conflict,
            _ => return None,
        })
    }

    /// The kind of a file system error, for code that reads or writes files. This is the only table of such errors.
    #[must_use]
    pub const fn of_file(cause: io::ErrorKind) -> Self {
        match cause {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::AlreadyExists => Self::AlreadyExists,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::AccessDenied,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Self::Full,
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => Self::Invalid,
            io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => Self::Invalid,
            // The bytes should be text and are not.
            io::ErrorKind::InvalidData => Self::Invalid,
            io::ErrorKind::Unsupported => Self::Unsupported,
            io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Io,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorKind;
    use std::io;

    #[test]
    fn golden_codes() {
        let names: Vec<_> = (1..=14).filter_map(ErrorKind::from_code).map(ErrorKind::name).collect();
        let expected = "invalid, not found, already exists, full, busy, unavailable, fenced, access denied, \
                        corrupt, timed out, closed, i/o, unsupported, conflict";
        assert_eq!(names.join(", "), expected);
    }

    #[test]
    fn errors_of_the_system_say_what_to_do() {
        let kind = |number| ErrorKind::of_file(io::Error::from_raw_os_error(number).kind());
        // ENOENT, EEXIST, EACCES, EROFS, ENOSPC, EDQUOT, EFBIG, EIO, EINVAL, ENOTDIR, EISDIR.
        use ErrorKind::{AccessDenied, AlreadyExists, Full, Invalid, Io, NotFound};
        assert_eq!([2, 17, 13, 30].map(kind), [NotFound, AlreadyExists, AccessDenied, AccessDenied]);
        assert_eq!([28, 122, 27, 5].map(kind), [Full, Full, Full, Io]);
        assert_eq!([22, 20, 21].map(kind), [Invalid; 3]);
    }

    #[test]
    fn codes_are_distinct_and_round_trip() {
        let kinds: Vec<_> = (0..=u8::MAX).filter_map(ErrorKind::from_code).collect();
        assert_eq!(kinds.len(), 14);
        for (i, kind) in kinds.iter().enumerate() {
            assert_eq!(usize::from(kind.code()), i + 1);
        }
    }
}
