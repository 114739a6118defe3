//! Recorded traces, read request by request.
//!
//! | form | recognized by | a line | its meaning |
//! |---|---|---|---|
//! | block | first line `version,time,op,size,lbn` | `1,5633898,2a,512,42932745` | a request of a virtual disk: `size` bytes from block `lbn` of 512 bytes; op `28` reads, `2a` writes (SCSI, hexadecimal) |
//! | page | anything else | `start count ignore request` | references to `count` consecutive pages from `start` |
//!
//! A file that begins with zstd's magic number is decompressed on the way.

mod block;
mod lines;
mod page;
mod request;

pub use request::{BLOCK_BYTES, MAX_PAGES, MAX_REQUEST_BYTES, Request};

use crate::Error;
use lines::Lines;
use std::path::Path;

/// The meaning of a trace's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Requests of a virtual disk.
    Block,
    /// References to pages of a database.
    Page,
}

/// An open trace.
#[derive(Debug)]
pub struct Trace {
    lines: Lines,
    form: Form,
    /// Remaining pages of the last line: the next one, and how many.
    pages: (u64, u64),
    /// The first line, if it is a request.
    first: Option<String>,
}

impl Trace {
    /// Opens a trace.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mut lines = Lines::open(path)?;
        let first = lines.next()?.map(str::to_owned);
        let (form, first) = match first {
            Some(line) if line == block::HEADER => (Form::Block, None),
            first => (Form::Page, first),
        };
        Ok(Self { lines, form, pages: (0, 0), first })
    }

    /// The meaning of the lines.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Trace`] with the invalid line, [`Error::Io`].
    pub fn next_request(&mut self) -> Result<Option<Request>, Error> {
        while self.pages.1 == 0 {
            let first = self.first.take();
            let Some(line) = (match &first {
                Some(line) => Some(line.as_str()),
                None => self.lines.next()?,
            }) else {
                return Ok(None);
            };
            if line.is_empty() {
                continue;
            }
            let parsed = match self.form {
                Form::Block => match block::parse(line) {
                    Ok(request) => return Ok(Some(request)),
                    Err(cause) => Err(cause),
                },
                Form::Page => page::parse(line),
            };
            self.pages = parsed.map_err(|cause| self.lines.malformed(cause))?;
        }
        let (page, left) = self.pages;
        self.pages = (page + 1, left - 1);
        Ok(Some(Request::Page(page)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn all_of(bytes: &[u8]) -> Result<Vec<Request>, Error> {
        let name = format!("forebay-trace-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
        let result = Trace::open(&path).and_then(|mut trace| {
            let mut requests = Vec::new();
            while let Some(request) = trace.next_request()? {
                requests.push(request);
            }
            Ok(requests)
        });
        std::fs::remove_file(&path).unwrap();
        result
    }

    #[test]
    fn both_forms_are_told_apart() {
        let block = b"version,time,op,size,lbn\n1,5,2a,1024,7\r\n1,6,28,512,8\n";
        let expected = [Request::WriteBlocks { first: 7, count: 2 }, Request::ReadBlocks { first: 8, count: 1 }];
        assert_eq!(all_of(block).unwrap(), expected);
        let page = b"5 2 0 0\n\n9 1 0 1";
        assert_eq!(all_of(page).unwrap(), [5, 6, 9].map(Request::Page));
        assert_eq!(all_of(b"").unwrap(), []);
    }

    #[test]
    fn compressed_frames_follow_one_another() {
        let frame = |text: &str| {
            ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
        };
        let bytes = [frame("1 1 0 0\n2 1"), frame(" 0 1\n3 1 0 2\n")].concat();
        let expected = [1, 2, 3].map(Request::Page);
        assert_eq!(all_of(&bytes).unwrap(), expected);
        for length in 1..bytes.len() {
            let is_whole_frame = length == frame("1 1 0 0\n2 1").len();
            assert!(is_whole_frame || matches!(all_of(&bytes[..length]), Err(Error::Trace { .. })), "{length}");
        }
        // A flipped bit is found, unless nothing depends on it.
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match all_of(&damaged) {
                Ok(found) => assert_eq!(found, expected, "bit {bit}"),
                Err(Error::Trace { .. }) => {}
                Err(error) => panic!("bit {bit}: {error}"),
            }
        }
    }

    #[test]
    fn a_malformed_line_is_named() {
        for (bytes, line) in [
            (&b"1 1 0 0\nx 1 0 0\n"[..], 2),
            (b"1 1\n", 1),
            (b"1 99999999999 0 0\n", 1),
            (b"18446744073709551615 1 0 0\n", 1),
            (b"version,time,op,size,lbn\n1,2,2a,512,3\n1,2,2b,512,3\n", 3),
            (b"version,time,op,size,lbn\n1,2,2a,100,3\n", 2),
            (b"version,time,op,size,lbn\n1,2,2a,512\n", 2),
            (b"version,time,op,size,lbn\n1,2,28,99999999999488,1\n", 2),
            (b"1 1 0 0\n\xff\xfe\n", 2),
        ] {
            match all_of(bytes) {
                Err(Error::Trace { line: found, .. }) => assert_eq!(found, line, "{bytes:?}"),
                other => panic!("{bytes:?} gave {other:?}"),
            }
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        assert!(matches!(all_of(&vec![b'1'; 1 << 20]), Err(Error::Trace { line: 1, .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>, form in 0_usize..3) {
            let head: &[u8] = [&b""[..], b"version,time,op,size,lbn\n", &[0x28, 0xb5, 0x2f, 0xfd]][form];
            let _ = all_of(&[head, &bytes].concat());
        }
    }
}
