//! Many tasks of one thread write at once, and share the log's syncs. It needs the feature `async`.
//!
//! `cargo run --package forebay --example asynchronous --features async`

use forebay::{AsyncStore, DirectoryOptions, Durability, Options, Syncing};
use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use std::error::Error;

const TASKS: u32 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let folder = tempfile::tempdir()?;
        // A write has reached the disk when it returns.
        let database = Options { durability: Durability::Storage(Syncing::Sync), ..Options::default() };
        let options = DirectoryOptions { database, ..DirectoryOptions::default() };
        let store = AsyncStore::open_with(folder.path(), options).await?;

        try_join_all((0..TASKS).map(|task| {
            let store = store.clone();
            async move { store.put(task.to_be_bytes(), format!("written by task {task}")).await }
        }))
        .await?;

        let last: Vec<_> = store.range((TASKS - 3).to_be_bytes()..).await?.try_collect().await?;
        for (_, value) in &last {
            println!("{}", String::from_utf8_lossy(value));
        }
        assert_eq!(last.len(), 3);
        let log = store.run(|store| Ok::<_, forebay::Error>(store.statistics().log)).await?;
        println!("{TASKS} writes, {} groups in the log", log.groups);
        store.close().await?;
        Ok(())
    })
}

#[test]
fn it_runs() {
    main().unwrap();
}
