//! Storage in Azure, simulated by Azurite on loopback.
//!
//! It needs Node and takes a while to install, so its tests are not part of `cargo xtask test`.

use crate::command::Workspace;
use crate::setup::provide_node_package;
use crate::{Outcome, setup};

const AZURITE: &str = "azurite@3.35.0";

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    setup::run(workspace)?;
    provide_node_package(workspace, "target/servers/azure", AZURITE, "Azurite is a package of Node")?;
    let tests = ["--package", "forebay-storage-conformance", "--test", "storage", "--", "azure", "--ignored"];
    workspace.cargo().arguments(["test"]).arguments(tests).run()
}
