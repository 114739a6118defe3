//! Bodies of calls and replies, coded as `docs/formats/node-messages.md` says: a version byte, then the fields one after
//! the other.

/// The version of bodies, except of replies that declare another one.
pub const VERSION: u8 = 1;

/// A shard of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// The store.
    pub store: u64,
    /// The shard in it.
    pub shard: u32,
}

/// A part of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The extent.
    pub extent: u32,
    /// Bytes from its start.
    pub offset: u64,
    /// Length, bytes.
    pub length: u64,
}

/// A key that opens memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Index of the grant.
    pub index: u32,
    /// Its secret.
    pub secret: u128,
}

/// An extent with its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// The extent.
    pub extent: u32,
    /// 1 to read, 2 to write, 4 for atomic operations, summed up.
    pub rights: u8,
    /// Its key.
    pub key: Key,
}

/// A body that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body(Vec<u8>);

impl Default for Body {
    fn default() -> Self {
        Self(vec![VERSION])
    }
}

macro_rules! integers {
    ($($name:ident)*) => {$(
        /// Appends a number.
        #[must_use]
        pub fn $name(self, number: $name) -> Self {
            self.rest(&number.to_le_bytes())
        }
    )*};
}

impl Body {
    integers!(u8 u16 u32 u64 u128);

    /// Appends a flag.
    #[must_use]
    pub fn flag(self, flag: bool) -> Self {
        self.u8(flag.into())
    }

    /// Appends a text. If it is too long, its length field is truncated, so that it is not a valid
    /// text.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        self.u8(text.len() as u8).rest(text.as_bytes())
    }

    /// Appends a blob.
    #[must_use]
    pub fn blob(self, bytes: &[u8]) -> Self {
        self.u16(bytes.len() as u16).rest(bytes)
    }

    /// Appends a shard.
    #[must_use]
    pub fn shard(self, Shard { store, shard }: Shard) -> Self {
        self.u64(store).u32(shard)
    }

    /// Appends a list of extents.
    #[must_use]
    pub fn extents(self, extents: &[u32]) -> Self {
        extents.iter().fold(self.u16(extents.len() as u16), |body, extent| body.u32(*extent))
    }

    /// Appends bytes as they are.
    #[must_use]
    pub fn rest(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The fields of a body that are still to be read.
#[derive(Debug)]
pub struct Fields<'a>(&'a [u8]);

macro_rules! read_integers {
    ($($name:ident)*) => {$(
        /// The next field: a number.
        pub fn $name(&mut self) -> Option<$name> {
            self.array().map($name::from_le_bytes)
        }
    )*};
}

impl<'a> Fields<'a> {
    /// The fields after the version, which must be `version`.
    #[must_use]
    pub fn of(body: &'a [u8], version: u8) -> Option<Self> {
        let (&found, fields) = body.split_first()?;
        (found == version).then_some(Self(fields))
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (field, left) = self.0.split_at_checked(length)?;
        self.0 = left;
        Some(field)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    read_integers!(u8 u16 u32 u64 u128);

    /// The next field: a flag.
    pub fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// The next field: a text.
    pub fn text(&mut self) -> Option<String> {
        let length = self.u8()?;
        String::from_utf8(self.bytes(length.into())?.to_vec()).ok()
    }

    /// The next field: a blob.
    pub fn blob(&mut self) -> Option<Vec<u8>> {
        let length = self.u16()?;
        self.bytes(length.into()).map(<[u8]>::to_vec)
    }

    /// The next field: a list.
    pub fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u16()?;
        (0..count).map(|_| item(self)).collect()
    }

    /// The next field: an extent with its key.
    pub fn granted(&mut self) -> Option<Granted> {
        let (extent, rights) = (self.u32()?, self.u8()?);
        Some(Granted { extent, rights, key: Key { index: self.u32()?, secret: self.u128()? } })
    }

    /// All that is left.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
