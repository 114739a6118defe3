//! A small client: pipelines out, replies in.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};

/// A reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `+`
    Simple(String),
    /// `-`
    Error(String),
    /// `:`
    Integer(i64),
    /// `$`, and `=` with the format in front.
    Bulk(Vec<u8>),
    /// `$-1` and `_`
    Null,
    /// `*-1`
    NullArray,
    /// `,`
    Double(String),
    /// `#`
    Boolean(bool),
    /// `*`, `~`, `%` and `>`, with the sign.
    Many(u8, Vec<Value>),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Integer(number) => write!(f, ":{number}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Null => f.write_str("null"),
            Self::NullArray => f.write_str("null array"),
            Self::Double(text) => write!(f, ",{text}"),
            Self::Boolean(value) => write!(f, "#{value}"),
            Self::Many(sign, values) => {
                write!(f, "{}[", char::from(*sign))?;
                for value in values {
                    write!(f, "{value} ")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    /// Connects to a port of this machine.
    ///
    /// # Errors
    /// Those of the system.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Its own end of the connection.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> Result<SocketAddr> {
        self.reader.get_ref().local_addr()
    }

    /// Sends requests.
    ///
    /// # Errors
    /// Those of the system.
    pub fn send<'r>(&mut self, requests: impl IntoIterator<Item = &'r [Vec<u8>]>) -> Result<()> {
        let mut bytes = Vec::new();
        for request in requests {
            bytes.extend_from_slice(format!("*{}\r\n", request.len()).as_bytes());
            for argument in request {
                bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
                bytes.extend_from_slice(argument);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.reader.get_mut().write_all(&bytes)
    }

    /// Sends a request and returns the reply.
    ///
    /// # Errors
    /// Those of the system.
    pub fn call<A: AsRef<[u8]>>(&mut self, request: &[A]) -> Result<Value> {
        let request: Vec<Vec<u8>> = request.iter().map(|argument| argument.as_ref().to_vec()).collect();
        self.send([&request[..]])?;
        self.receive()
    }

    /// Receives a reply.
    ///
    /// # Errors
    /// Those of the system; when the bytes are not a reply.
    pub fn receive(&mut self) -> Result<Value> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\r\n") else { return Err(ErrorKind::UnexpectedEof.into()) };
        let Some((sign, rest)) = line.split_first() else { return Err(broken("an empty line")) };
        let text = String::from_utf8_lossy(rest).into_owned();
        let number = || text.parse::<i64>().map_err(|_| broken(&text));
        Ok(match sign {
            b'+' => Value::Simple(text),
            b'-' => Value::Error(text),
            b':' => Value::Integer(number()?),
            b',' => Value::Double(text),
            b'#' => Value::Boolean(text == "t"),
            b'_' => Value::Null,
            b'$' | b'=' => match number()? {
                -1 => Value::Null,
                length => {
                    let mut bytes = vec![0; usize::try_from(length).map_err(|_| broken(&text))? + 2];
                    self.reader.read_exact(&mut bytes)?;
                    bytes.truncate(bytes.len() - 2);
                    Value::Bulk(bytes)
                }
            },
            b'*' | b'~' | b'%' | b'>' => match number()? {
                -1 => Value::NullArray,
                length => {
                    let length = if *sign == b'%' { length * 2 } else { length };
                    let values = (0..length).map(|_| self.receive()).collect::<Result<_>>()?;
                    Value::Many(*sign, values)
                }
            },
            _ => return Err(broken(&text)),
        })
    }
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("no reply: {what}"))
}
