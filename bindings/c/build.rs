//! Names the shared library for the dynamic linker, and makes it export only this crate's functions.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libforebay.so.0");
    // A dependency may have C functions of its own, as `crc-fast` does with the features that S3 has.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
