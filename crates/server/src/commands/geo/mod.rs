//! Places on earth, as members of sorted sets.
//!
//! The score of a place is its cell on a grid of 2^26 by 2^26 over longitude and latitude, with the bits of both
//! interleaved, so that places that are near have scores that are near. A search reads the cell around its centre, on a
//! coarser grid, and the cells beside it, and measures what it finds there.
//!
//! | module | holds |
//! |---|---|
//! | `grid` | cells and scores |
//! | `shape` | circles and boxes, and the cells that cover them |
//! | `places` | commands about places |
//! | `search` | commands that search |

mod grid;
pub mod places;
pub mod search;
mod shape;
