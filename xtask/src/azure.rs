//! Storage in Azure, as Azurite plays it on loopback.
//!
//! It needs Node and takes a while to install, so what it tests is no part of `cargo xtask test`.

use crate::command::Workspace;
use crate::setup::{once, provide};
use crate::{Outcome, setup};

const AZURITE: &str = "azurite@3.35.0";

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    setup::run(workspace)?;
    provide(workspace, "node", "nodejs", "Azurite runs on it")?;
    provide(workspace, "npm", "npm", "it gets Azurite")?;
    once(workspace, "target/servers/azure", AZURITE, |folder| {
        let options = ["install", "--silent", "--no-fund", "--no-audit", AZURITE, "--prefix"];
        workspace.program("npm").arguments(options).arguments([folder]).run()
    })?;
    let tests = ["--package", "forebay-storage-conformance", "--test", "storage", "--", "servers::azure", "--ignored"];
    workspace.cargo().arguments(["test"]).arguments(tests).run()
}
