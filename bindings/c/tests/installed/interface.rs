//! The header, the library's symbols and the functions in Rust agree.

use crate::installation::{Installed, built, compiler, run};
use forebay::ErrorKind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// LevelDB's functions, one a line.
const OF_LEVELDB: &str = include_str!("leveldb-functions.txt");

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", folder.display());
    files
}

/// Names of the functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(folder("include/forebay.h")).unwrap();
    let without_comments: String = header
        .split("/*")
        .enumerate()
        .map(|(i, part)| if i == 0 { part } else { part.split_once("*/").unwrap().1 })
        .collect();
    let names = without_comments.split('(').filter_map(|before| {
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
        before.rsplit(|character| !is_part(character)).next().map(String::from)
    });
    names.filter(|name| name.starts_with("leveldb_") || name.starts_with("forebay_")).collect()
}

/// Names of all symbols that the shared library offers.
fn offered() -> BTreeSet<String> {
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(built().join("libforebay_capi.so")));
    symbols.lines().filter_map(|line| line.split_whitespace().last()).map(String::from).collect()
}

#[test]
fn header_and_library_have_the_same_functions_and_all_of_leveldbs() {
    let (declared, offered) = (declared(), offered());
    assert_eq!(declared, offered);
    let of_leveldb: BTreeSet<_> = OF_LEVELDB.lines().map(String::from).collect();
    assert_eq!(of_leveldb.len(), 68);
    let found: BTreeSet<_> = offered.into_iter().filter(|name| name.starts_with("leveldb_")).collect();
    assert_eq!(found, of_leveldb);
}

/// A C compiler refuses two declarations of one function that differ, so it is shown the header and what the Rust code
/// says.
#[test]
fn header_and_code_declare_the_same_types() {
    let mut builder = cbindgen::Builder::new().with_language(cbindgen::Language::C).with_documentation(false);
    builder = builder.with_style(cbindgen::Style::Both);
    for source in files(&folder("src"), "rs") {
        builder = builder.with_src(source);
    }
    let both = Path::new(env!("CARGO_TARGET_TMPDIR")).join("both.c");
    let mut text = b"#include <forebay.h>\n".to_vec();
    builder.generate().unwrap().write(&mut text);
    let generated = String::from_utf8(text).unwrap();
    for name in declared() {
        assert!(generated.contains(&format!("{name}(")), "no function in Rust declares {name}");
    }
    let check = |text: &str| {
        std::fs::write(&both, text).unwrap();
        let mut command = compiler("both.c");
        crate::installation::ran(command.arg("-fsyntax-only").arg("-I").arg(folder("include")).arg(&both))
    };
    let (is_fine, said) = check(&generated);
    assert!(is_fine, "{said}");
    // A checker counts only once it has failed.
    let different = generated.replacen("int leveldb_major_version(void)", "long leveldb_major_version(void)", 1);
    assert!(different != generated && !check(&different).0);
}

#[test]
fn header_and_library_have_the_same_kinds_of_errors() {
    let header = std::fs::read_to_string(folder("include/forebay.h")).unwrap();
    let entries = header.split(['{', ',']).filter_map(|entry| {
        let (name, number) = entry.trim_start().rsplit_once("FOREBAY_ERROR_")?.1.split_once(" = ")?;
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        Some((digits.parse().unwrap(), name.to_owned()))
    });
    let declared: Vec<(u8, String)> = entries.collect();
    let constant = |kind: ErrorKind| kind.name().to_uppercase().replace('/', "").replace(' ', "_");
    let known: Vec<_> = (1..=u8::MAX).filter_map(|code| Some((code, constant(ErrorKind::from_code(code)?)))).collect();
    assert_eq!(declared, known);
}

#[test]
fn each_header_stands_alone() {
    let include = folder("include");
    let check = |header: &Path, flags: &[&str]| {
        let mut command = Command::new("c++");
        command.args(flags).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c++"]);
        run(command.arg("-I").arg(&include).arg("-I").arg(include.join("compat")).arg(header));
    };
    for header in [files(&include.join("forebay"), "h"), files(&include.join("compat/leveldb"), "h")].concat() {
        check(&header, &["-std=c++11"]);
    }
    for flags in [&["-std=c++20"][..], &["-std=c++17", "-fno-exceptions", "-fno-rtti"]] {
        check(&include.join("forebay/db.h"), flags);
    }
}

#[test]
fn the_installation_is_complete() {
    let installed = Installed::new("complete");
    let version = installed.pkg_config(&["--modversion"]);
    assert_eq!(version, [env!("CARGO_PKG_VERSION")]);
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("complete/lib/libforebay.so");
    assert!(library.canonicalize().unwrap().ends_with(format!("libforebay.so.{}", env!("CARGO_PKG_VERSION"))));
}
