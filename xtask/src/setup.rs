//! `cargo xtask setup`: what the machine needs beyond the Rust toolchain.
//!
//! Debian and its kin get missing packages from apt-get, as root or through sudo. Elsewhere this
//! says what is needed and verifies what it can. Running it again does nothing.

use crate::command::Workspace;
use crate::{Failure, Outcome};
use std::path::Path;

/// A Debian package and why it is needed.
struct Package {
    name: &'static str,
    why: &'static str,
}

const PACKAGES: &[Package] = &[Package { name: "build-essential", why: "rustc links with the C compiler" }];

/// Components of the Rust toolchain, by the cargo command that each provides.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    packages(workspace)?;
    components(workspace)
}

fn packages(workspace: &Workspace) -> Outcome {
    let on_debian = Path::new("/usr/bin/dpkg-query").exists() && Path::new("/usr/bin/apt-get").exists();
    if !on_debian {
        return elsewhere(workspace);
    }
    install(workspace, PACKAGES)
}

/// Makes a program available that only one suite needs, from this Debian package.
pub(crate) fn provide(workspace: &Workspace, program: &str, name: &'static str, why: &'static str) -> Outcome {
    if workspace.program(program).arguments(["--version"]).succeeds() {
        return Ok(());
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        return Err(Failure::Failed(format!("`{program}` is missing ({why}): install what corresponds to {name}")));
    }
    install(workspace, &[Package { name, why }])
}

fn install(workspace: &Workspace, packages: &[Package]) -> Outcome {
    let missing: Vec<&Package> = packages.iter().filter(|package| !is_installed(workspace, package)).collect();
    if missing.is_empty() {
        println!("setup: the Debian packages are there");
        return Ok(());
    }
    for package in &missing {
        println!("setup: installing {}: {}", package.name, package.why);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    apt_get(workspace, &["update"])?;
    apt_get(workspace, &[&["install", "--yes", "--no-install-recommends"], names.as_slice()].concat())
}

fn is_installed(workspace: &Workspace, package: &Package) -> bool {
    let query = workspace.program("dpkg-query").arguments(["--show", "--showformat=${Status}", package.name]);
    query.output().is_some_and(|status| status == "install ok installed")
}

fn apt_get(workspace: &Workspace, arguments: &[&str]) -> Outcome {
    let is_root = workspace.program("id").arguments(["-u"]).output().is_some_and(|id| id.trim() == "0");
    let step = if is_root {
        workspace.program("apt-get").environment("DEBIAN_FRONTEND", "noninteractive")
    } else if workspace.program("sudo").arguments(["--non-interactive", "true"]).succeeds() {
        workspace.program("sudo").arguments(["--non-interactive", "DEBIAN_FRONTEND=noninteractive", "apt-get"])
    } else {
        let line = arguments.join(" ");
        return Err(Failure::Failed(format!("not root and no sudo without a password: run `apt-get {line}` as root")));
    };
    step.arguments(arguments).run()
}

fn elsewhere(workspace: &Workspace) -> Outcome {
    if workspace.program("cc").arguments(["--version"]).succeeds() {
        println!("setup: not a Debian system; a C compiler is there, which is all that is needed");
        return Ok(());
    }
    let needs: Vec<String> = PACKAGES.iter().map(|package| format!("{} ({})", package.name, package.why)).collect();
    Err(Failure::Failed(format!(
        "not a Debian system, and no `cc`: install what corresponds to {} by hand",
        needs.join(", ")
    )))
}

fn components(workspace: &Workspace) -> Outcome {
    for (command, component) in COMPONENTS {
        if workspace.cargo().arguments([command, "--version"]).succeeds() {
            continue;
        }
        println!("setup: adding {component} to the Rust toolchain");
        workspace.program("rustup").arguments(["component", "add", component]).run()?;
    }
    println!("setup: the Rust toolchain has what is needed");
    Ok(())
}
