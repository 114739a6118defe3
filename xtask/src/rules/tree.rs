//! The files that the rules look at: what git tracks, and what it would track if it were added.

use crate::command::Workspace;
use crate::{Failure, Outcome};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Text files by path; paths are relative to the repository's folder and use `/`.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the repository. Without git, every file outside hidden folders and `target`.
    pub(crate) fn load(workspace: &Workspace) -> Result<Self, Failure> {
        let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let mut paths = Vec::new();
        match workspace.program("git").arguments(listing).output() {
            Some(list) => paths.extend(list.split('\0').filter(|path| !path.is_empty()).map(String::from)),
            None => walk(workspace.root(), "", &mut paths)?,
        }
        let mut tree = Self::default();
        for path in paths {
            // A file that git tracks may be deleted in the working copy.
            if let Ok(bytes) = fs::read(workspace.root().join(&path)) {
                tree.files.insert(path, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        Ok(tree)
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The text of the file at `path`.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether `path` is a file or a folder with files.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty() || self.files.contains_key(path) || self.below(&folder).next().is_some()
    }

    /// Paths and texts of all files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Paths and texts of the files whose path starts with `prefix`.
    pub(crate) fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files().filter(move |(path, _)| path.starts_with(prefix))
    }

    /// Paths and texts of the files with this extension.
    pub(crate) fn with_extension<'a>(&'a self, extension: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files().filter(move |(path, _)| Path::new(path).extension().is_some_and(|found| found == extension))
    }

    /// A tree of these files.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        Self { files: files.into_iter().map(|(path, text)| (path.into(), text.into())).collect() }
    }
}

fn walk(root: &Path, folder: &str, paths: &mut Vec<String>) -> Outcome {
    let failed = |error| Failure::Failed(format!("cannot read the folder `{folder}`: {error}"));
    for entry in fs::read_dir(root.join(folder)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().display().to_string();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if !entry.file_type().map_err(failed)?.is_dir() {
            paths.push(path);
        } else if name != "target" && !name.starts_with('.') {
            walk(root, &path, paths)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn folders_exist_through_their_files() {
        let tree = Tree::of([("a/b/c.md", "")]);
        for path in ["", "a", "a/b", "a/b/", "a/b/c.md"] {
            assert!(tree.exists(path), "{path}");
        }
        for path in ["a/b/c", "b", "a/b/c.md/d"] {
            assert!(!tree.exists(path), "{path}");
        }
    }
}
