//! Functions that clients call by name, in libraries.
//!
//! A library is a text with a name. While it is loaded, it registers its functions. No two libraries may have functions
//! of the same name. Capital and small letters are the same in a function's name, but not in a library's.

use crate::script::first_line::Flags;
use bytes::Bytes;
use mlua::Table;
use std::collections::BTreeMap;

/// How many libraries there may be. Lua holds one value for each, and for each library that replaces one.
pub const MAX_LIBRARIES: usize = 1024;

/// A function of a library.
#[derive(Debug, Clone)]
pub struct Registered {
    /// What the library calls it.
    pub name: String,
    /// The library's description of it.
    pub description: Option<Vec<u8>>,
    /// The flags that it declares.
    pub flags: Flags,
}

/// A library.
#[derive(Debug, Clone)]
pub struct Library {
    /// Its name.
    pub name: String,
    /// Its text, with the first line.
    pub text: Bytes,
    /// Its functions, by name.
    pub functions: BTreeMap<String, Registered>,
    /// The functions to call, with the keys and the arguments, by name.
    pub callbacks: Table,
}

/// Why a library is not added.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another one has a function of this name.
    Taken(String),
    /// There are [`MAX_LIBRARIES`].
    TooMany,
}

/// All libraries.
#[derive(Debug, Clone, Default)]
pub struct Functions {
    libraries: BTreeMap<String, Library>,
    /// The library and the name of each function, by its name in small letters.
    places: BTreeMap<String, (String, String)>,
}

impl Functions {
    /// The libraries, in the order of their names.
    pub fn libraries(&self) -> impl Iterator<Item = &Library> {
        self.libraries.values()
    }

    /// Whether there is a library of this name.
    #[must_use]
    pub fn has(&self, library: &str) -> bool {
        self.libraries.contains_key(library)
    }

    /// The numbers of libraries and of functions.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.libraries.len(), self.libraries.values().map(|library| library.functions.len()).sum())
    }

    /// The function of a name, and its library.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<(&Library, &Registered)> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        let (library, name) = self.places.get(&name)?;
        let library = self.libraries.get(library)?;
        Some((library, library.functions.get(name)?))
    }

    /// Adds a library, or replaces the one of the same name.
    ///
    /// # Errors
    /// Why it is not added; then nothing has changed.
    pub fn add(&mut self, library: Library) -> Result<(), Refused> {
        if self.libraries.len() >= MAX_LIBRARIES && !self.has(&library.name) {
            return Err(Refused::TooMany);
        }
        let is_taken = |name: &&String| {
            self.places.get(&name.to_ascii_lowercase()).is_some_and(|(owner, _)| *owner != library.name)
        };
        if let Some(taken) = library.functions.keys().find(is_taken) {
            return Err(Refused::Taken(taken.clone()));
        }
        self.remove(&library.name);
        for name in library.functions.keys() {
            let place = (library.name.clone(), name.clone());
            self.places.entry(name.to_ascii_lowercase()).or_insert(place);
        }
        self.libraries.insert(library.name.clone(), library);
        Ok(())
    }

    /// Removes a library. Returns false when there is none of this name.
    pub fn remove(&mut self, library: &str) -> bool {
        self.places.retain(|_, (owner, _)| owner != library);
        self.libraries.remove(library).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(lua: &mlua::Lua, name: &str, functions: &[&str]) -> Library {
        let registered = |name: &&str| {
            ((*name).to_owned(), Registered { name: (*name).into(), description: None, flags: Flags::default() })
        };
        let functions = functions.iter().map(registered).collect();
        Library { name: name.into(), text: Bytes::new(), functions, callbacks: lua.create_table().unwrap() }
    }

    #[test]
    fn a_function_is_in_one_library() {
        let lua = mlua::Lua::new();
        let mut all = Functions::default();
        all.add(library(&lua, "a", &["f", "F", "g"])).unwrap();
        assert_eq!(all.add(library(&lua, "b", &["h", "G"])), Err(Refused::Taken("G".into())));
        assert!(all.find(b"h").is_none() && !all.has("b"));
        assert_eq!(all.find(b"G").unwrap().1.name, "g");
        all.add(library(&lua, "a", &["h"])).unwrap();
        assert!(all.find(b"f").is_none());
        all.add(library(&lua, "b", &["G"])).unwrap();
        assert_eq!(all.counts(), (2, 2));
        assert!(all.remove("a") && !all.remove("a") && all.find(b"h").is_none());
    }

    #[test]
    fn as_many_libraries_are_taken_as_lua_can_hold() {
        let lua = mlua::Lua::new();
        let mut all = Functions::default();
        (0..MAX_LIBRARIES).for_each(|name| all.add(library(&lua, &name.to_string(), &[])).unwrap());
        assert_eq!(all.add(library(&lua, "more", &[])), Err(Refused::TooMany));
        all.add(library(&lua, "0", &["f"])).unwrap();
    }
}
