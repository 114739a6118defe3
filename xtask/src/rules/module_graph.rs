//! Which module of a crate uses which: read from the paths in its sources.
//!
//! A *module* of the graph is a file; the contents of `mod x { … }` belong to the file that has them. Files are found
//! as the compiler finds them, from the crate's root along `mod x;`, so files that only tests declare are left out.
//!
//! One module *uses* another when a path in its code leads to an item that the other defines:
//!
//! - Paths are those in `use`, and all others that begin with `crate`, `self`, `super`, a child module or an imported
//!   name.
//! - A path is followed through imports and re-exports to the module that defines the item. Code that names
//!   `crate::Error` uses the module that `Error` is in, not the root that re-exports it.
//! - Declaring a module is not a use of it, nor is re-exporting from a child module (`pub use child::Item`): a `mod.rs`
//!   may present its children, and they may use what it defines. A `mod.rs` whose own code names an item of a child
//!   uses that child.
//! - Importing a module (`use crate::child;`) is not a use of it; the paths that begin with its name are.
//! - `use x::*` is a use of `x`.
//!
//! Not seen: uses that no path names (a method of a value that came from elsewhere), what macros generate, and files
//! with a `#[path]` (the file of the module's name counts).

use super::Tree;
use super::tokens::{Code, Token, end_of_group};
use std::collections::{BTreeMap, BTreeSet};

/// How often a path is followed from one re-export to the next.
const MAX_STEPS: usize = 32;

/// The modules of a crate, and who uses whom.
#[derive(Debug)]
pub(super) struct ModuleGraph {
    /// The file modules by name (`shm::events`; the root's is empty), with the paths of their files.
    pub(super) files: BTreeMap<String, String>,
    /// From the using module to the used one; only between different modules.
    pub(super) uses: BTreeMap<(String, String), Place>,
}

/// The first place where a module uses another.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: String,
    /// Counted from 1.
    pub(super) line: usize,
    /// The path as it is written.
    pub(super) written: String,
}

/// `folder`s of the packages in the tree: `crates/fabric`, `xtask`.
pub(super) fn packages(tree: &Tree) -> impl Iterator<Item = &str> {
    tree.files().filter_map(|(path, _)| path.strip_suffix("/Cargo.toml"))
}

/// The module's name for people.
pub(super) fn shown(module: &str) -> &str {
    if module.is_empty() { "crate" } else { module }
}

/// The graph of the package's library, or of its program when it has none.
pub(super) fn of_package(tree: &Tree, folder: &str) -> Option<ModuleGraph> {
    let source = format!("{folder}/src/");
    let root = ["lib.rs", "main.rs"].iter().map(|file| format!("{source}{file}")).find(|path| tree.exists(path))?;
    let mut reader = Reader::default();
    let mut waiting = vec![(String::new(), root)];
    let mut files = BTreeMap::new();
    while let Some((module, path)) = waiting.pop() {
        let Some(text) = tree.text(&path) else { continue };
        if files.insert(module.clone(), path).is_some() {
            continue;
        }
        for child in reader.read(&module, text) {
            let below = format!("{source}{}", child.replace("::", "/"));
            let path = [".rs", "/mod.rs"].iter().map(|end| format!("{below}{end}")).find(|path| tree.exists(path));
            waiting.extend(path.map(|path| (child, path)));
        }
    }
    let uses = reader.uses(&files);
    Some(ModuleGraph { files, uses })
}

/// What the sources of a crate contain.
#[derive(Debug, Default)]
struct Reader {
    /// All modules by name, including those within files.
    modules: BTreeMap<String, Module>,
    paths: Vec<Path>,
}

#[derive(Debug, Default)]
struct Module {
    /// The file module that contains it.
    file: String,
    /// Names that `use` brings in, and the paths that they stand for.
    imports: BTreeMap<String, Vec<String>>,
    /// The `x` of each `use x::*`.
    globs: Vec<Vec<String>>,
    definitions: BTreeSet<String>,
}

/// A path as it is written.
#[derive(Debug)]
struct Path {
    /// The module that contains it.
    module: String,
    segments: Vec<String>,
    line: usize,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// In code: `crate::shm::listen()`.
    Code,
    Import {
        is_public: bool,
    },
    Glob {
        is_public: bool,
    },
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Module(String),
    /// An item that this module defines.
    ItemOf(String),
    /// Out of the crate, or to a name that is no path's beginning.
    Elsewhere,
}

impl Reader {
    /// Reads the file of `module`. Returns the modules that it declares with files of their own.
    fn read(&mut self, module: &str, text: &str) -> Vec<String> {
        let code = Code::of(text);
        let tokens = code.tokens();
        let word = |at: usize| tokens.get(at).map_or("", |token| token.text);
        let mut declared = Vec::new();
        // Open modules, each with the depth of braces of its items.
        let mut open = vec![(module.to_owned(), 0usize)];
        let (mut at, mut depth) = (0, 0usize);
        self.modules.entry(module.into()).or_default().file = module.into();
        while at < tokens.len() {
            let (here, items_at) = open.last().cloned().unwrap_or_default();
            match word(at) {
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    if depth < items_at {
                        open.pop();
                    }
                }
                // `pub(in crate::shm)` names who may use this, not what is used.
                "pub" if word(at + 1) == "(" && word(end_of_group(&tokens, at + 1)) != "use" => {
                    at = end_of_group(&tokens, at + 1);
                    continue;
                }
                "mod" if word(at + 2) == ";" => declared.push(child_of(&here, word(at + 1))),
                "mod" if word(at + 2) == "{" => {
                    let child = child_of(&here, word(at + 1));
                    self.modules.entry(child.clone()).or_default().file = module.into();
                    depth += 1;
                    open.push((child, depth));
                    at += 3;
                    continue;
                }
                "pub" | "use" if word(at + 1) != "<" => {
                    let is_public = word(at) == "pub";
                    let from = match (is_public, word(at + 1)) {
                        (true, "(") => end_of_group(&tokens, at + 1) + 1,
                        (true, "use") => at + 2,
                        (true, _) => {
                            at += 1;
                            continue;
                        }
                        (false, _) => at + 1,
                    };
                    at = self.read_use(&here, is_public, &tokens, from);
                    continue;
                }
                // `macro_rules! name`.
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" | "!"
                    if depth == items_at && tokens.get(at + 1).is_some_and(Token::is_word) =>
                {
                    self.modules.entry(here).or_default().definitions.insert(word(at + 1).into());
                }
                _ if tokens[at].is_word() && word(at + 1) == "::" => {
                    let before = at.checked_sub(1).map_or("", word);
                    let mut segments = vec![word(at).to_owned()];
                    let line = tokens[at].line;
                    while word(at + 1) == "::" && tokens.get(at + 2).is_some_and(Token::is_word) {
                        segments.push(word(at + 2).into());
                        at += 2;
                    }
                    if !matches!(before, "::" | ".") && segments.len() > 1 {
                        self.paths.push(Path { module: here, segments, line, kind: Kind::Code });
                    }
                }
                _ => {}
            }
            at += 1;
        }
        declared
    }

    /// Reads what follows `use` at `from`. Returns the place after it.
    fn read_use(&mut self, module: &str, is_public: bool, tokens: &[Token<'_>], from: usize) -> usize {
        // The path before each open brace.
        let mut prefixes: Vec<Vec<String>> = Vec::new();
        let mut segments: Vec<String> = Vec::new();
        let mut alias = None;
        let mut at = from;
        while let Some(token) = tokens.get(at) {
            match token.text {
                "::" => {}
                "{" => prefixes.push(segments.clone()),
                "," | "}" | ";" => {
                    let outer = prefixes.last().map_or(0, Vec::len);
                    if segments.len() > outer {
                        self.add_use(module, is_public, &segments, alias.take(), token.line);
                    }
                    if token.text == "}" {
                        // What follows a brace is a comma or another end: nothing may be left to add there.
                        segments = prefixes.pop().unwrap_or_default();
                        segments.truncate(prefixes.last().map_or(0, Vec::len));
                    } else {
                        segments = prefixes.last().cloned().unwrap_or_default();
                    }
                    if token.text == ";" {
                        return at + 1;
                    }
                }
                "as" => {
                    alias = tokens.get(at + 1).map(|name| name.text.to_owned());
                    at += 1;
                }
                text => segments.push(text.into()),
            }
            at += 1;
        }
        at
    }

    fn add_use(&mut self, module: &str, is_public: bool, segments: &[String], alias: Option<String>, line: usize) {
        let entry = self.modules.entry(module.into()).or_default();
        let mut segments = segments.to_vec();
        let kind = match segments.last().map(String::as_str) {
            Some("*") => {
                segments.pop();
                entry.globs.push(segments.clone());
                Kind::Glob { is_public }
            }
            Some("self") if segments.len() > 1 => {
                segments.pop();
                Kind::Import { is_public }
            }
            _ => Kind::Import { is_public },
        };
        if let (Kind::Import { .. }, Some(name)) = (kind, alias.or_else(|| segments.last().cloned())) {
            entry.imports.insert(name, segments.clone());
        }
        self.paths.push(Path { module: module.into(), segments, line, kind });
    }

    fn uses(&self, files: &BTreeMap<String, String>) -> BTreeMap<(String, String), Place> {
        let mut uses = BTreeMap::new();
        for path in &self.paths {
            let Some(target) = self.target_of(path) else { continue };
            let (Some(from), Some(to)) = (self.modules.get(&path.module), self.modules.get(&target)) else { continue };
            if from.file != to.file {
                let Path { segments, line, .. } = path;
                let file = files.get(&from.file).cloned().unwrap_or_default();
                let place = Place { path: file, line: *line, written: segments.join("::") };
                uses.entry((from.file.clone(), to.file.clone())).or_insert(place);
            }
        }
        uses
    }

    /// Returns the module that the path uses.
    fn target_of(&self, path: &Path) -> Option<String> {
        let target = self.resolve(&path.module, &path.segments, MAX_STEPS);
        let is_presented = |target: &str| is_within(target, &path.module);
        match (path.kind, target) {
            (_, Target::Elsewhere) | (Kind::Code, Target::Module(_)) => None,
            (Kind::Code, Target::ItemOf(module)) => Some(module),
            (Kind::Import { is_public: false }, Target::Module(_)) => None,
            (Kind::Import { is_public } | Kind::Glob { is_public }, Target::Module(to) | Target::ItemOf(to)) => {
                (!(is_public && is_presented(&to))).then_some(to)
            }
        }
    }

    /// Follows a path in `module`.
    fn resolve(&self, module: &str, segments: &[String], steps: usize) -> Target {
        let Some((first, mut rest)) = segments.split_first() else { return Target::Elsewhere };
        let mut current = module.to_owned();
        match first.as_str() {
            "crate" => current.clear(),
            "self" => {}
            "super" => {
                current = parent_of(&current).to_owned();
                while let Some((_, after)) = rest.split_first().filter(|(next, _)| *next == "super") {
                    current = parent_of(&current).to_owned();
                    rest = after;
                }
            }
            name if self.begins_path(module, name) => rest = segments,
            _ => return Target::Elsewhere,
        }
        self.walk(current, rest, steps)
    }

    /// Whether `name` in `module` is a child module or imported.
    fn begins_path(&self, module: &str, name: &str) -> bool {
        let is_imported = self.modules.get(module).is_some_and(|module| match module.imports.get(name) {
            // `use rustix;` does not lead on.
            Some(path) => path.as_slice() != [name],
            None => false,
        });
        is_imported || self.modules.contains_key(&child_of(module, name))
    }

    /// Follows `segments` down from `current`.
    fn walk(&self, mut current: String, segments: &[String], steps: usize) -> Target {
        let Some(steps) = steps.checked_sub(1) else { return Target::Elsewhere };
        for (i, name) in segments.iter().enumerate() {
            let child = child_of(&current, name);
            let module = self.modules.get(&current);
            let import = module.and_then(|module| module.imports.get(name));
            let is_last = i + 1 == segments.len();
            // If a module and an item have the same name, the end of a path is the item.
            if self.modules.contains_key(&child) && !(is_last && import.is_some()) {
                current = child;
                continue;
            }
            let Some(import) = import else {
                return self.through_globs(&current, name, &segments[i + 1..], steps);
            };
            // `use child::child;`: the name within the path is the module.
            let target = match import.split_first() {
                Some((first, rest)) if first == name && self.modules.contains_key(&child) => {
                    self.walk(child, rest, steps)
                }
                Some((first, _)) if first == name => Target::Elsewhere,
                _ => self.resolve(&current, import, steps),
            };
            match target {
                Target::Module(module) => current = module,
                found => return found,
            }
        }
        Target::Module(current)
    }

    /// Finds the item `name` of `module`: its own, or one that it has through `use x::*`.
    fn through_globs(&self, module: &str, name: &String, rest: &[String], steps: usize) -> Target {
        let own = Target::ItemOf(module.into());
        let Some(entry) = self.modules.get(module).filter(|entry| !entry.definitions.contains(name)) else {
            return own;
        };
        let through = entry.globs.iter().filter_map(|glob| match self.resolve(module, glob, steps) {
            Target::Module(from) if from != module => Some(from),
            _ => None,
        });
        let with_name = through.filter(|from| {
            let is_there = |module: &Module| module.definitions.contains(name) || module.imports.contains_key(name);
            self.modules.contains_key(&child_of(from, name)) || self.modules.get(from).is_some_and(is_there)
        });
        let found = with_name.map(|from| self.walk(from, &[std::slice::from_ref(name), rest].concat(), steps)).next();
        found.unwrap_or(own)
    }
}

fn child_of(module: &str, name: &str) -> String {
    if module.is_empty() { name.into() } else { format!("{module}::{name}") }
}

fn parent_of(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(parent, _)| parent)
}

/// Whether `module` is below `outer`.
fn is_within(module: &str, outer: &str) -> bool {
    match module.strip_prefix(outer) {
        Some(rest) if outer.is_empty() => !rest.is_empty(),
        Some(rest) => rest.starts_with("::"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `from -> to` and the line of each use in a crate of these files below `src`.
    fn uses<const N: usize>(files: [(&str, &str); N]) -> Vec<String> {
        let files = files.map(|(path, text)| (format!("a/src/{path}"), text));
        let tree = Tree::of(files.each_ref().map(|(path, text)| (path.as_str(), *text)));
        let graph = of_package(&tree, "a").expect("the crate has a root");
        let shown = |((from, to), place): (&(String, String), &Place)| {
            format!("{} -> {} :{}", shown(from), shown(to), place.line)
        };
        graph.uses.iter().map(shown).collect()
    }

    #[test]
    fn every_form_of_path_is_followed() {
        for (code, used) in [
            ("use crate::b::B;", "a -> b :1"),
            ("use super::b::{self, B};", "a -> b :1"),
            ("use crate::{d::{self, D}, c::inner::C as Other};\nfn f() { d::g() }", "a -> c::inner :1,a -> d :1"),
            ("use crate::b;\n\nfn f() -> b::B {}", "a -> b :3"),
            ("fn f() { super::b::g::<u8>(); }", "a -> b :1"),
            ("fn f(x: &crate::b::B) {}", "a -> b :1"),
            ("use crate::c as other;\nfn f() -> other::inner::C {}", "a -> c::inner :2"),
            ("mod x { fn f() -> super::super::b::B {} }", "a -> b :1"),
            ("pub(crate) use crate::b::B;", "a -> b :1"),
            ("use crate::b::*;", "a -> b :1"),
            ("macro_rules! m { () => { $crate::b::g() } }", "a -> b :1"),
        ] {
            let root = "mod a; mod b; mod c; mod d;";
            let found = uses([
                ("lib.rs", root),
                ("a.rs", code),
                ("b.rs", "pub struct B; pub fn g() {}"),
                ("c/mod.rs", "pub mod inner;"),
                ("c/inner.rs", "pub struct C;"),
                ("d.rs", "pub struct D; pub fn g() {}"),
            ]);
            assert_eq!(found.join(","), used, "{code}");
        }
    }

    #[test]
    fn what_is_no_use() {
        for code in [
            "use std::fmt; use other::b::B; fn f() { b::g(); x.collect::<Vec<u8>>() }",
            "pub(in crate::b) fn f() {}",
            "// crate::b::B\nconst A: &str = \"crate::b::B\";",
            "#[cfg(test)]\nmod tests { use crate::b::B; }",
            "#[cfg(test)]\nmod tests;",
            "use crate::b;",
            "fn f<'a>() -> impl Sized + use<'a> {}",
            "use self::own::X; mod own { pub struct X; }",
        ] {
            let found = uses([
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", code),
                ("a/tests.rs", "use crate::b::B;"),
                ("b.rs", "pub struct B;"),
            ]);
            assert_eq!(found, [""; 0], "{code}");
        }
    }

    #[test]
    fn re_exports_lead_to_who_defines() {
        let found = uses([
            ("lib.rs", "mod a; mod b; pub use b::{C, Twin, twin}; pub use b::d::*; pub struct Own;"),
            ("a.rs", "use crate::C;\nuse crate::D;\nuse crate::Own;\nuse crate::b::E;\nuse crate::twin;"),
            ("b/mod.rs", "mod c; pub mod d; mod e; mod twin; pub use c::C; pub(crate) use e::*; pub use twin::twin;"),
            ("b/c.rs", "pub struct C;"),
            ("b/d.rs", "pub struct D;"),
            ("b/e.rs", "pub struct E;"),
            ("b/twin.rs", "pub fn twin() {}"),
        ]);
        let expected = ["a -> crate :3", "a -> b::c :1", "a -> b::d :2", "a -> b::e :4", "a -> b::twin :5"];
        let sorted = |mut list: Vec<String>| {
            list.sort();
            list
        };
        assert_eq!(sorted(found), sorted(expected.map(String::from).into()));
    }

    #[test]
    fn a_parent_uses_a_child_when_its_own_code_names_it() {
        let child = ("a/b.rs", "use super::A;");
        let parent = "mod b; pub use b::B; pub(crate) use self::b::C; pub struct A;";
        assert_eq!(uses([("lib.rs", "mod a;"), ("a/mod.rs", parent), child]), ["a::b -> a :1"]);
        let parent = format!("{parent}\nfn f() {{ b::g() }}");
        assert_eq!(uses([("lib.rs", "mod a;"), ("a/mod.rs", &parent), child]), ["a -> a::b :2", "a::b -> a :1"]);
        assert_eq!(uses([("lib.rs", "mod a;"), ("a.rs", "mod b; use b::B; pub struct A;"), child]).len(), 2);
    }

    #[test]
    fn re_exports_that_go_round_end() {
        let found =
            uses([("lib.rs", "mod a; mod b;"), ("a.rs", "pub use crate::b::X;"), ("b.rs", "pub use crate::a::X;")]);
        assert_eq!(found, [""; 0]);
    }
}
