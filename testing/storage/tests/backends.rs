//! The suite on each back end that needs no server.

use forebay_storage::{SimDisk, Storage, StorageOptions};
use forebay_storage_conformance::{cases, servers};
use std::sync::Arc;

fn open(url: &str) -> Storage {
    Storage::open(url, StorageOptions::default()).unwrap()
}

#[test]
fn memory() {
    cases::run(&open("memory:"));
}

#[test]
fn simulated_disk() {
    cases::run(&Storage::of_disk(Arc::new(SimDisk::new()), 1, StorageOptions::default()));
}

#[test]
fn directory() {
    let folder = servers::scratch("directory");
    let storage = open(&format!("file://{}/new/store", folder.display()));
    cases::run(&storage);
    assert_eq!(storage.objects().sweep().unwrap(), 0);
    std::fs::remove_dir_all(folder).unwrap();
}
