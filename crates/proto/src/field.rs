//! Coding of message bodies.
//!
//! ```text
//!  body     1 version (1, unless the message says another) │ fields in the order of the struct
//!  integer  little-endian, its own width; a flag is one byte, 0 or 1
//!  text     1 length │ UTF-8, at most 255 bytes
//!  blob     2 length │ bytes, at most 4096
//!  list     2 count │ items, at most 128
//!  rest     all that is left; last field only
//!  range    4 extent │ 8 offset │ 8 length
//!  grant    4 extent │ 1 rights │ 20 access key
//!  shard    8 store │ 4 shard
//! ```
//!
//! The RPC envelope's checksum covers the body. See `docs/formats/node-messages.md`.

use crate::ids::{Epoch, ExtentId, ExtentRange, GrantedExtent, Purpose, SessionId, ShardId, ShardKey, StoreId};
use forebay_base::{DecodeError, Reader, Writer};
use forebay_fabric::rpc::{get_key, put_key};
use forebay_fabric::{AccessKey, Rights};

/// Length of the longest text in bytes.
pub const MAX_TEXT_BYTES: usize = 255;
/// Length of the longest blob in bytes.
pub const MAX_BLOB_BYTES: usize = 4096;
/// Maximum number of items of a list. A list of extents of this length fits into one message.
pub const MAX_LIST: usize = 128;

/// A value with a place in a message.
pub trait Field: Sized {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads the value.
    ///
    /// # Errors
    /// [`DecodeError`].
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// The body of a request or a reply.
pub trait Message: Field {
    /// Version of the layout of its fields.
    const VERSION: u8 = 1;

    /// The body's bytes.
    #[must_use]
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![Self::VERSION];
        self.put(&mut out);
        out
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// [`DecodeError`], also when bytes are left over.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != Self::VERSION {
            return Err(DecodeError::BadValue { what: "message version", found: version.into() });
        }
        let message = Self::take(&mut reader)?;
        reader.finish()?;
        Ok(message)
    }
}

macro_rules! integer_fields {
    ($($type:ty: $put:ident, $take:ident;)*) => {$(
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.$put(*self);
            }
            fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.$take()
            }
        }
    )*};
}

integer_fields! {
    u8: put_u8, u8;
    u16: put_u16, u16;
    u32: put_u32, u32;
    u64: put_u64, u64;
    u128: put_u128, u128;
}

macro_rules! id_fields {
    ($($name:ident),*) => {$(
        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Field::take(reader).map(Self)
            }
        }
    )*};
}

id_fields!(SessionId, StoreId, ShardId, Epoch, ExtentId);

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(*self));
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(DecodeError::BadValue { what: "flag", found: found.into() }),
        }
    }
}

impl Field for Purpose {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(*self as u8);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number = reader.u8()?;
        Self::from_number(number).ok_or(DecodeError::BadValue { what: "purpose", found: number.into() })
    }
}

impl Field for ShardKey {
    fn put(&self, out: &mut Vec<u8>) {
        self.store.put(out);
        self.shard.put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { store: Field::take(reader)?, shard: Field::take(reader)? })
    }
}

impl Field for ExtentRange {
    fn put(&self, out: &mut Vec<u8>) {
        self.extent.put(out);
        self.offset.put(out);
        self.length.put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { extent: Field::take(reader)?, offset: reader.u64()?, length: reader.u64()? })
    }
}

impl Field for AccessKey {
    fn put(&self, out: &mut Vec<u8>) {
        put_key(out, *self);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        get_key(reader)
    }
}

impl Field for GrantedExtent {
    fn put(&self, out: &mut Vec<u8>) {
        self.extent.put(out);
        out.put_u8(self.rights.bits());
        put_key(out, self.key);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let extent = Field::take(reader)?;
        let bits = reader.u8()?;
        let rights = Rights::from_bits(bits).ok_or(DecodeError::BadValue { what: "rights", found: bits.into() })?;
        Ok(Self { extent, rights, key: get_key(reader)? })
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(self.len() <= MAX_LIST, "whoever makes a list cuts it into pages");
        out.put_u16(self.len() as u16);
        for item in self {
            item.put(out);
        }
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = usize::from(reader.u16()?);
        if count > MAX_LIST {
            return Err(DecodeError::BadValue { what: "list length", found: count as u64 });
        }
        (0..count).map(|_| T::take(reader)).collect()
    }
}

/// A short text: a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text(String);

impl Text {
    /// The text; `None` when it is longer than [`MAX_TEXT_BYTES`].
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (text.len() <= MAX_TEXT_BYTES).then_some(Self(text))
    }

    /// As a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Field for Text {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(self.0.len() as u8);
        out.extend_from_slice(self.0.as_bytes());
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = reader.u8()?;
        let bytes = reader.bytes(length.into())?;
        let text =
            std::str::from_utf8(bytes).map_err(|_| DecodeError::BadValue { what: "text", found: length.into() })?;
        Ok(Self(text.into()))
    }
}

/// A few bytes that the node keeps and does not interpret.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Blob(Vec<u8>);

impl Blob {
    /// The blob; `None` when it is longer than [`MAX_BLOB_BYTES`].
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (bytes.len() <= MAX_BLOB_BYTES).then_some(Self(bytes))
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, owned.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Field for Blob {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.0.len() as u16);
        out.extend_from_slice(&self.0);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = usize::from(reader.u16()?);
        if length > MAX_BLOB_BYTES {
            return Err(DecodeError::BadValue { what: "blob length", found: length as u64 });
        }
        Ok(Self(reader.bytes(length)?.to_vec()))
    }
}

/// All remaining bytes of a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rest(pub Vec<u8>);

impl Field for Rest {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(reader.rest().to_vec()))
    }
}

/// Declares a message: a struct whose fields are coded in the order of their declaration. Its version is 1 if it names none.
macro_rules! message {
    ($(#[$about:meta])* $name:ident $(= $version:literal)? { $($(#[$field_about:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_about])* pub $field: $type,)*
        }

        impl $crate::field::Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $($crate::field::Field::put(&self.$field, out);)*
            }
            fn take(reader: &mut forebay_base::Reader<'_>) -> Result<Self, forebay_base::DecodeError> {
                let _ = &reader;
                Ok(Self { $($field: $crate::field::Field::take(reader)?,)* })
            }
        }

        impl $crate::field::Message for $name {
            $(const VERSION: u8 = $version;)?
        }
    };
}
pub(crate) use message;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_not_made_and_not_read() {
        assert!(Text::new("x".repeat(256)).is_none());
        assert!(Blob::new(vec![0; 4097]).is_none());
        let mut long = vec![0x01, 0x10];
        long.extend_from_slice(&[0; 4097]);
        assert!(Blob::take(&mut Reader::new(&long)).is_err());
        assert!(Vec::<u8>::take(&mut Reader::new(&[129, 0])).is_err());
        assert!(Text::take(&mut Reader::new(&[1, 0xff])).is_err());
        assert!(bool::take(&mut Reader::new(&[2])).is_err());
    }
}
