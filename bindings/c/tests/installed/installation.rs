//! The interface as `make install` lays it out, and programs that are compiled against it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How a program is compiled and linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The shared library.
    Shared,
    /// The static library.
    Static,
    /// The shared library, the program checked by sanitizers: addresses, leaks, undefined behaviour.
    Sanitized,
}

/// An installation in a folder of its own.
pub struct Installed {
    folder: PathBuf,
}

impl Installed {
    /// Installs what this test was built with into the folder `name`.
    pub fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let (built, prefix) = (format!("BUILT={}", built().display()), format!("PREFIX={}", folder.display()));
        run(Command::new("make")
            .args(["--silent", "-C", env!("CARGO_MANIFEST_DIR"), "install-built"])
            .args([built, prefix]));
        Self { folder }
    }

    /// Returns what pkg-config answers, as words.
    pub fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.folder.join("lib/pkgconfig"));
        let said = run(command.args(arguments).arg("forebay"));
        said.split_whitespace().map(String::from).collect()
    }

    /// Compiles a program of `tests/installed/programs`, and returns where it is.
    pub fn compile(&self, source: &str, how: How) -> PathBuf {
        let output = self.folder.join(format!("{source}-{how:?}"));
        let mut command = compiler(source);
        command.arg("-g").arg("-o").arg(&output).arg(programs().join(source)).arg("-pthread");
        command.args(self.pkg_config(&["--cflags"]));
        match how {
            How::Static => {
                command.arg(self.folder.join("lib/libforebay.a"));
                let libraries = self.pkg_config(&["--static", "--libs"]);
                command.args(libraries.iter().filter(|library| *library != "-lforebay"));
            }
            How::Shared | How::Sanitized => {
                command.args(self.pkg_config(&["--libs"]));
                command.arg(format!("-Wl,-rpath,{}", self.folder.join("lib").display()));
            }
        }
        if how == How::Sanitized {
            command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        }
        run(&mut command);
        output
    }
}

/// The folder that holds the libraries that this test was built with.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().expect("the test is somewhere");
    test.parent().expect("and in a folder").to_owned()
}

/// The folder of the programs.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/installed/programs")
}

/// The compiler for a source, with warnings as errors.
pub fn compiler(source: &str) -> Command {
    let (program, standard) = if source.ends_with(".c") { ("cc", "-std=c11") } else { ("c++", "-std=c++11") };
    let mut command = Command::new(program);
    command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    command
}

/// Runs a command that must succeed, and returns what it printed.
pub fn run(command: &mut Command) -> String {
    let (is_fine, said) = ran(command);
    assert!(is_fine, "{command:?} failed:\n{said}");
    said
}

/// Runs a command. Returns whether it succeeded, and what it printed.
pub fn ran(command: &mut Command) -> (bool, String) {
    let output =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; `cargo xtask setup` installs it"));
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}
