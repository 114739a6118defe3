//! Bindings to other languages that cargo alone can neither build nor test.
//!
//! `cargo xtask python` builds the wheel of `bindings/python` and tests it in a virtual environment below `target`.
//! `cargo xtask bindings-bench` measures what a read costs through C and through Python.

use crate::command::{Step, Workspace};
use crate::{Failure, Outcome, setup};
use std::fs;
use std::path::PathBuf;

/// The virtual environment, below the repository's folder.
const FOLDER: &str = "target/python";
/// The packages that build and test the wheel, and that it is compared with.
const TOOLS: &[&str] = &["maturin==1.16.0", "pytest==9.2.0", "mypy==2.4.1", "plyvel==1.5.1"];

/// Builds, installs and tests the wheel.
pub(crate) fn python(workspace: &Workspace) -> Outcome {
    let environment = Environment::with_wheel(workspace, &[])?;
    let python = || environment.tool("python");
    python().arguments(["-X", "dev", "-W", "error", "-m", "pytest", "-q", "bindings/python/tests"]).run()?;
    python().arguments(["-m", "mypy.stubtest", "forebay"]).run()?;
    python().arguments(["-m", "mypy", "--strict", "bindings/python/tests"]).run()
}

/// Measures what a read costs through C compared with Rust, and through Python compared with plyvel, which is LevelDB.
pub(crate) fn bench(workspace: &Workspace) -> Outcome {
    workspace.cargo().arguments(["run", "--release", "--package", "forebay-capi", "--example", "get"]).run()?;
    let environment = Environment::with_wheel(workspace, &["--release"])?;
    environment.tool("python").arguments(["bindings/python/benches/get.py"]).run()
}

/// A virtual environment.
struct Environment<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
}

impl<'a> Environment<'a> {
    /// Makes the environment, with the tools and a new wheel.
    fn with_wheel(workspace: &'a Workspace, profile: &[&str]) -> Result<Self, Failure> {
        setup::provide_python_packages(workspace, FOLDER, TOOLS)?;
        let environment = Self { workspace, folder: workspace.root().join(FOLDER) };
        environment.install_wheel(profile)?;
        Ok(environment)
    }

    fn tool(&self, name: &str) -> Step {
        self.workspace.program(self.folder.join("bin").join(name))
    }

    fn failed(&self) -> impl Fn(std::io::Error) -> Failure {
        move |error| Failure::Failed(format!("{}: {error}", self.folder.display()))
    }

    fn install_wheel(&self, profile: &[&str]) -> Outcome {
        let wheels = self.folder.join("wheels");
        if wheels.exists() {
            fs::remove_dir_all(&wheels).map_err(self.failed())?;
        }
        let manifest = ["--manifest-path", "bindings/python/Cargo.toml"];
        let build = self.tool("maturin").arguments(["build", "--compatibility", "linux"]).arguments(manifest);
        build.arguments(profile).arguments(["--out"]).arguments([&wheels]).run()?;
        let built = fs::read_dir(&wheels).map_err(self.failed())?.collect::<Result<Vec<_>, _>>();
        let built = built.map_err(self.failed())?;
        let [wheel] = built.as_slice() else {
            return Err(Failure::Failed(format!("{} wheels were built, not one", built.len())));
        };
        let install = self.tool("pip").arguments(setup::QUIET_INSTALL);
        install.arguments(["--no-deps", "--force-reinstall"]).arguments([wheel.path()]).run()
    }
}
