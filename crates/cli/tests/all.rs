//! The command, as processes.

mod admin;
mod admin_page;
mod admission;
mod common;
mod damage;
mod dump;
mod durable;
mod end_to_end;
mod inspect_memory;
mod kill;
mod limits;
mod local;
mod manual;
mod pool;
mod restart;
mod serve;
mod serve_tree;
mod usage;
mod worker;
