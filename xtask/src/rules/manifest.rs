//! What the rules need of a `Cargo.toml`: the package's name and its dependencies.
//!
//! This reads the style of TOML that manifests are written in (one entry a line), not all of TOML.

/// A dependency on a package of Forebay.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) package: String,
    pub(super) line: usize,
    /// Needed only by tests, examples and benchmarks.
    pub(super) is_for_tests: bool,
}

/// The package's name, and its line.
pub(crate) fn package_name(manifest: &str) -> Option<(String, usize)> {
    entries(manifest)
        .find(|entry| entry.section == "package" && entry.key == "name")
        .map(|entry| (unquoted(entry.value), entry.line))
}

/// Paths of the programs of tests that the manifest lists, if cargo must not look for them itself.
pub(super) fn test_programs(manifest: &str) -> Option<Vec<String>> {
    let is_set =
        entries(manifest).any(|entry| entry.section == "package" && entry.key == "autotests" && entry.value == "false");
    let paths = entries(manifest).filter(|entry| entry.section == "test" && entry.key == "path");
    is_set.then(|| paths.map(|entry| unquoted(entry.value)).collect())
}

/// Dependencies on packages named `forebay` or `forebay-…`, also renamed ones and those of some
/// targets only.
pub(super) fn forebay_dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    for entry in entries(manifest) {
        let Some((kind, named_by_section)) = dependency_section(entry.section) else { continue };
        let package = match (named_by_section, renamed(entry.value)) {
            (Some(_), _) if entry.key == "package" => unquoted(entry.value),
            (Some(name), _) => name.to_owned(),
            (None, Some(package)) => package,
            (None, None) => unquoted(entry.key.split('.').next().unwrap_or_default()),
        };
        let is_of_forebay = package == "forebay" || package.starts_with("forebay-");
        let is_for_tests = kind == "dev-dependencies";
        let is_known = found.iter().any(|known| known.package == package && known.is_for_tests == is_for_tests);
        if is_of_forebay && !is_known {
            found.push(Dependency { package, line: entry.line, is_for_tests });
        }
    }
    found
}

struct Entry<'a> {
    section: &'a str,
    key: &'a str,
    value: &'a str,
    line: usize,
}

fn entries(manifest: &str) -> impl Iterator<Item = Entry<'_>> {
    let mut section = "";
    manifest.lines().zip(1..).filter_map(move |(text, line)| {
        let text = text.trim();
        if text.starts_with('[') {
            section = text.trim_matches(['[', ']']);
            return None;
        }
        let (key, value) = text.split_once('=').filter(|_| !text.starts_with('#'))?;
        Some(Entry { section, key: key.trim(), value: value.trim(), line })
    })
}

/// The kind of dependencies that a section lists, and the dependency that its header names, if any.
fn dependency_section(section: &str) -> Option<(&str, Option<&str>)> {
    const KINDS: [&str; 3] = ["dev-dependencies", "build-dependencies", "dependencies"];
    for kind in KINDS {
        let is_kind = |head: &str| head == kind || head.ends_with(&format!(".{kind}"));
        if is_kind(section) {
            return Some((kind, None));
        }
        if let Some((head, name)) = section.rsplit_once('.')
            && is_kind(head)
        {
            return Some((kind, Some(name)));
        }
    }
    None
}

/// The package in `{ package = "…", … }`.
fn renamed(value: &str) -> Option<String> {
    let (_, rest) = value.split_once("package")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
    rest.split('"').next().map(String::from)
}

fn unquoted(text: &str) -> String {
    text.trim().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_a_dependency_is_read() {
        let manifest = "[package]\nname = \"forebay-x\"\n[dependencies]\nforebay-a.workspace = true\n\
            forebay-b = { workspace = true }\nthiserror = \"2\"\nother = { package = \"forebay-c\", path = \"c\" }\n\
            # forebay-no = \"1\"\n[dev-dependencies]\nforebay-d.workspace = true\n[dependencies.forebay-e]\npath = \"e\"\n\
            [target.'cfg(unix)'.build-dependencies]\nforebay-f.workspace = true\n[features]\nforebay-g = []\n";
        let found = forebay_dependencies(manifest);
        let list: Vec<_> = found.iter().map(|one| (one.package.as_str(), one.line, one.is_for_tests)).collect();
        assert_eq!(
            list,
            [
                ("forebay-a", 4, false),
                ("forebay-b", 5, false),
                ("forebay-c", 7, false),
                ("forebay-d", 10, true),
                ("forebay-e", 12, false),
                ("forebay-f", 14, false),
            ]
        );
        assert_eq!(package_name(manifest), Some(("forebay-x".into(), 2)));
    }
}
