//! Every single bit of a small database in storage is flipped: what is read then is right, or an error.
//!
//! Each bit of each object and file (commits, log, segments, images) is flipped on a copy of the storage. The copy is
//! then opened with empty memory and read as a whole. One exception is allowed. In the log's last group, which no later
//! frame calls durable, a flipped bit cannot be told from a torn write. This group may be cut; then opening says so. A
//! verification must also find what cannot be read, and what can be saved is right.
//!
//! By default some hundred bits are tried, spread over all; with `FOREBAY_BITS=all`, every one (`cargo xtask
//! bit-flips`).

use crate::common::flips::{flip_in_objects, flip_on_a_disk};

#[test]
fn a_flipped_bit_on_a_disk() {
    flip_on_a_disk();
}

#[test]
fn a_flipped_bit_in_objects() {
    flip_in_objects();
}
