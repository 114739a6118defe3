//! Tables, versions and jobs.

mod compaction;
mod golden_jobs;
mod store;
mod table;
mod version;
