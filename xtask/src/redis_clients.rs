//! Clients of Redis in several languages, which programs of `testing/redis/clients` use.
//!
//! `cargo xtask setup` installs redis-py, whose program runs with all tests. `cargo xtask redis-clients` installs what
//! the other programs need, and runs all of them.

use crate::command::Workspace;
use crate::setup::{provide, provide_node_package};
use crate::{Outcome, setup};

const NODE: &str = "ioredis@5.8.2";

pub(crate) fn run(workspace: &Workspace) -> Outcome {
    setup::run(workspace)?;
    provide_node_package(workspace, "target/redis-clients/node", NODE, "ioredis is a package of Node")?;
    // The dependencies of Go and Java are named beside the programs, and their own tools get them.
    provide(workspace, "go", "golang-go", "it builds the program over go-redis")?;
    let test = |package, program| workspace.cargo().arguments(["test", "--package", package, "--test", program, "--"]);
    test("forebay-cli", "cli").arguments(["serve::redis_cli_and_redis_benchmark"]).run()?;
    test("forebay-redis-differential", "redis").arguments(["clients::", "--include-ignored", "--nocapture"]).run()
}
