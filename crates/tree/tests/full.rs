//! What works where no memory is left.

use crate::common::{Nodes, word};
use forebay_base::ErrorKind;
use forebay_tree::{TreeClient, TreeOptions};

/// Inserts keys until none has room any more. Returns those that are there.
fn fill(client: &mut TreeClient, mut key: impl FnMut(u64) -> Vec<u8>, value: &[u8], refusals: usize) -> Vec<Vec<u8>> {
    let (mut there, mut refused) = (Vec::new(), 0);
    for number in 0.. {
        let key = key(number);
        match client.insert(&key, value) {
            Ok(is_new) => {
                assert!(is_new);
                there.push(key);
                refused = 0;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                refused += 1;
                if refused == refusals {
                    break;
                }
            }
        }
    }
    there
}

#[test]
fn deletes_give_back_what_they_displaced() {
    let nodes = Nodes::start(1, 8 << 20);
    let options = TreeOptions { batch_bytes: 1, ..TreeOptions::default() };
    let mut client = nodes.create(options).client().unwrap();
    let keys = fill(&mut client, |number| word(number).to_vec(), &[7; 40], 1);
    // Few of a leaf, so that no leaves merge.
    for key in keys.iter().step_by(10).take(500) {
        assert!(client.delete(key).unwrap());
    }
}
