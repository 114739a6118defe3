//! The interface as it is installed: header, symbols and code agree, and programs in C and C++ use it.

#![forbid(unsafe_code)]

mod installation;
mod interface;
mod programs;
