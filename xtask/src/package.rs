//! The Debian package: `cargo xtask package`. `crates/cli/Cargo.toml` says what is in it.

use crate::command::{Step, Workspace};
use crate::{Failure, Outcome, suites, system_calls};
use std::path::{Path, PathBuf};

/// Where the package's own files are made, below the repository's folder.
const FOLDER: &str = "target/release/package";
/// Where cargo-deb leaves the package.
const PACKAGES: &str = "target/debian";
/// The shells that get completions, each with the name of its file.
const SHELLS: &[(&str, &str)] = &[("bash", "forebay"), ("fish", "forebay.fish"), ("zsh", "_forebay")];
/// Kinds of storage that the packaged command has to support.
const STORAGE: &[&str] =
    &["s3://bucket/folder", "gs://bucket/folder", "az://container/folder", "hdfs://host:9000/folder"];
const UNITS: &[&str] = &["forebay-serve", "forebay-memory-node"];

/// Builds the package, and checks its contents.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    suites::subcommand(workspace, "deb")?;
    let folder = workspace.root().join(FOLDER);
    make_files(workspace, &folder)?;
    let packages = workspace.root().join(PACKAGES);
    if packages.exists() {
        std::fs::remove_dir_all(&packages).map_err(failed(&packages))?;
    }
    workspace.cargo().arguments(["deb", "--no-build", "--package", "forebay-cli"]).run()?;
    let package = only_package(&packages)?;
    look_at(workspace, &package)?;
    println!("package: {}", package.display());
    Ok(())
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let path = path.display().to_string();
    move |error| Failure::Failed(format!("{path}: {error}"))
}

/// Builds the command, and lets it make its manual pages and completions.
fn make_files(workspace: &Workspace, folder: &Path) -> Outcome {
    let build = ["build", "--release", "--locked", "--package", "forebay-cli", "--features", "full"];
    workspace.cargo().arguments(build).run()?;
    let forebay = || workspace.program(workspace.root().join("target/release/forebay"));
    let (pages, completions) = (folder.join("man"), folder.join("completions"));
    for folder in [&pages, &completions] {
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
    }
    forebay().arguments([Path::new("man"), Path::new("--folder"), &pages]).run()?;
    for (shell, name) in SHELLS {
        let script = forebay().arguments(["completions", shell]).output();
        let script = script.ok_or_else(|| Failure::Failed(format!("forebay completions {shell} failed")))?;
        let path = completions.join(name);
        std::fs::write(&path, script).map_err(failed(&path))?;
    }
    Ok(())
}

fn only_package(folder: &Path) -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(folder).map_err(failed(folder))?;
    let mut packages =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.extension() == Some("deb".as_ref()));
    packages.next().ok_or_else(|| Failure::Failed(format!("there is no package in {}", folder.display())))
}

/// Checks that the package holds what it should, that its command runs, and that its units are sound.
fn look_at(workspace: &Workspace, package: &Path) -> Outcome {
    let unpacked = workspace.root().join(FOLDER).join("unpacked");
    if unpacked.exists() {
        std::fs::remove_dir_all(&unpacked).map_err(failed(&unpacked))?;
    }
    let program = |name: &str| -> Step { workspace.program(name) };
    program("dpkg-deb").arguments(["--info".as_ref(), package]).run()?;
    program("dpkg-deb").arguments(["--extract".as_ref(), package, &unpacked]).run()?;
    let mut wanted =
        vec!["usr/share/bash-completion/completions/forebay".to_owned(), "usr/share/doc/forebay/alerts.yml".to_owned()];
    wanted.extend(UNITS.iter().map(|unit| format!("usr/lib/systemd/system/{unit}.service")));
    let page = ["forebay.1", "forebay.1.gz"].map(|page| unpacked.join("usr/share/man/man1").join(page));
    if !page.iter().any(|page| page.exists()) {
        return Err(Failure::Failed("the manual page is not in the package".into()));
    }
    if let Some(missing) = wanted.iter().find(|path| !unpacked.join(path).exists()) {
        return Err(Failure::Failed(format!("{missing} is not in the package")));
    }
    let forebay = || workspace.program(unpacked.join("usr/bin/forebay"));
    forebay().arguments(["version"]).run()?;
    for url in STORAGE {
        let check = forebay().arguments(["serve", "--check-config", "--storage", url]);
        check.environment("AZURE_STORAGE_ACCOUNT_NAME", "account").run()?;
    }
    let units = UNITS.iter().map(|unit| unpacked.join(format!("usr/lib/systemd/system/{unit}.service")));
    let units: Vec<_> = units.collect();
    let verify = program("systemd-analyze").arguments(["verify", "--man=no", "--recursive-errors=no"]);
    verify.arguments(["--root".into(), unpacked.clone()]).arguments(&units).run()?;
    system_calls::check(workspace, &unpacked.join("usr/bin/forebay"), &units, &unpacked)
}
