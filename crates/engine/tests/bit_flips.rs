//! Every single bit of a small database in storage, flipped: what is read then is right, or an error.
//!
//! Each bit of each object and file (commits, log, segments, images) is flipped on a copy of the storage, which is then opened
//! with empty memory and read as a whole. The one thing that is allowed beside: of the log's last group, which no later frame
//! calls durable, a flipped bit cannot be told from a torn write, so it may be cut; then opening says so. What cannot be read, a
//! verification must find too, and what can be saved is right as well.
//!
//! By default some hundred bits are tried, spread over all; with `FOREBAY_BITS=all` every one (`cargo xtask bit-flips`).

use crate::common::flips::{flip_in_objects, flip_on_a_disk};

#[test]
fn a_flipped_bit_on_a_disk() {
    flip_on_a_disk();
}

#[test]
fn a_flipped_bit_in_objects() {
    flip_in_objects();
}
