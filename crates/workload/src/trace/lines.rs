//! Lines of a plain or compressed file.

use crate::Error;
use ruzstd::decoding::StreamingDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// Length of the longest line in bytes.
const LONGEST: u64 = 4096;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The lines of a file, each without its end.
pub(super) struct Lines {
    path: String,
    source: BufReader<Box<dyn Read + Send>>,
    number: u64,
    line: Vec<u8>,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("path", &self.path).field("number", &self.number).finish_non_exhaustive()
    }
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let failed = |cause: std::io::Error| Error::io(format!("reading the trace {name}"), cause);
        let mut file = BufReader::with_capacity(1 << 17, File::open(path).map_err(failed)?);
        let compressed = file.fill_buf().map_err(failed)?.starts_with(&ZSTD_MAGIC);
        let source: Box<dyn Read + Send> =
            if compressed { Box::new(Frames { decoder: None, source: Some(file) }) } else { Box::new(file) };
        Ok(Self { path: name, source: BufReader::new(source), number: 0, line: Vec::new() })
    }

    /// The next line.
    pub(super) fn next(&mut self) -> Result<Option<&str>, Error> {
        self.line.clear();
        self.number += 1;
        let read = (&mut self.source).take(LONGEST).read_until(b'\n', &mut self.line);
        match read {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(cause) if cause.kind() == ErrorKind::InvalidData => {
                return Err(self.malformed(format!("the compressed file is damaged: {cause}")));
            }
            Err(cause) => return Err(Error::io(format!("reading the trace {}", self.path), cause)),
        }
        if self.line.len() as u64 == LONGEST {
            return Err(self.malformed(format!("a line of {LONGEST} bytes or more")));
        }
        while self.line.last().is_some_and(|end| end.is_ascii_whitespace()) {
            self.line.pop();
        }
        match std::str::from_utf8(&self.line) {
            Ok(line) => Ok(Some(line)),
            Err(_) => Err(self.malformed("bytes that are not text".into())),
        }
    }

    /// An error about the last line read.
    pub(super) fn malformed(&self, cause: String) -> Error {
        Error::Trace { path: self.path.clone(), line: self.number, cause }
    }
}

type Decoder<R> = StreamingDecoder<R, ruzstd::decoding::FrameDecoder>;

/// The content of zstd frames that follow one another. Damage is an error of the kind `InvalidData`.
struct Frames<R: BufRead> {
    decoder: Option<Box<Decoder<R>>>,
    /// The file, between two frames.
    source: Option<R>,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                let read = decoder.read(into).map_err(damaged)?;
                if read > 0 || into.is_empty() {
                    return Ok(read);
                }
                let (stored, calculated) =
                    (decoder.decoder.get_checksum_from_data(), decoder.decoder.get_calculated_checksum());
                if stored.is_some() && stored != calculated {
                    return Err(damaged("its checksum does not match"));
                }
                self.source = self.decoder.take().map(|decoder| decoder.into_inner());
            }
            let Some(mut source) = self.source.take() else { return Ok(0) };
            if source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let decoder = StreamingDecoder::new(source).map_err(damaged)?;
            self.decoder = Some(Box::new(decoder));
        }
    }
}

fn damaged(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidData, cause)
}
