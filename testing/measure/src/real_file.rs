//! `cargo xtask real-file`: millions of records of a real file, loaded, killed, verified, loaded again, dumped, reloaded and
//! compared.
//!
//! The records are the stanzas of Debian's package index, or of another file of paragraphs: the key consists of the
//! paragraph's first line, its number and the number of passes over the file; the value is the paragraph. The command
//! `forebay` does everything in separate processes, in a folder that is removed at the end:
//!
//! 1. The records are written as a dump with tabs.
//! 2. They are loaded with `storage=interval`, and the process is killed (SIGKILL) once the database's objects have grown to a
//!    share of them.
//! 3. The database is verified and dumped: each line in the dump must be one of the file.
//! 4. Everything is loaded again, to the end, verified, and dumped: the dump must have each line of the file once, and no
//!    other.
//! 5. A binary dump of that is loaded into another database, which is dumped: both dumps must have the same bytes.

use crate::Outcome;
use crate::processes::{Forebay, output};
use forebay_dump::{Entry, tsv};
use forebay_env::{Clock, HashSet, SystemClock};
use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The process is killed when the database's compressed objects have this share of the file's bytes, per cent.
const KILLED_AT_PERCENT: u64 = 15;
/// Bytes of two files that are compared together.
const PIECE_BYTES: u64 = 1 << 20;
const PAUSE: Duration = Duration::from_millis(20);

/// Which file, and how much of it.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The file: paragraphs between empty lines. By default Debian's package index, as `apt-cache dumpavail` prints it.
    file: Option<PathBuf>,
    /// Number of records; the file is gone through as often as that takes.
    #[arg(long, default_value_t = 5_000_000)]
    records: u64,
    /// The folder for database and dumps; it needs room for about four times the records.
    #[arg(long, default_value = "target/real-file")]
    folder: PathBuf,
    /// Memory of the memory node of each process.
    #[arg(long, default_value = "4GiB")]
    memory: String,
}

/// Runs it.
///
/// # Errors
/// The first thing that is wrong.
pub fn execute(arguments: &Arguments) -> Outcome {
    let forebay = Forebay::build()?;
    let folder = &arguments.folder;
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let result = Run { arguments, forebay: &forebay, clock: SystemClock::new() }.all();
    std::fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    result
}

struct Run<'a> {
    arguments: &'a Arguments,
    forebay: &'a Forebay,
    clock: SystemClock,
}

impl Run<'_> {
    fn all(&self) -> Outcome {
        let input = self.path("input.tsv");
        let lines = self.step("write the file", || self.write_input(&input))?;
        let bytes = length(&input)?;
        println!("{} records, {bytes} bytes", lines.len());
        let database = self.path("database");
        self.step("load, and kill", || self.load_and_kill(&input, &database, bytes))?;
        self.step("verify", || self.run(&["verify", &storage(&database)]))?;
        let dump = self.path("first.tsv");
        self.step("dump what is there", || self.dump(&database, "tsv", &dump))?;
        let survived = self.step("compare", || compare(&dump, &lines))?;
        println!("{survived} records had survived");
        self.step("load to the end", || self.load(&input, "tsv", &database))?;
        remove(&input)?;
        self.step("verify", || self.run(&["verify", &storage(&database)]))?;
        self.step("dump", || self.dump(&database, "tsv", &dump))?;
        let all = self.step("compare", || compare(&dump, &lines))?;
        if all != lines.len() as u64 {
            return Err(format!("{all} of {} records are there", lines.len()));
        }
        let (binary, other, again) = (self.path("binary"), self.path("other"), self.path("again.tsv"));
        self.step("dump in binary", || self.dump(&database, "binary", &binary))?;
        self.step("load into another", || self.load(&binary, "binary", &other))?;
        remove(&binary)?;
        self.step("verify that", || self.run(&["verify", &storage(&other)]))?;
        self.step("dump that", || self.dump(&other, "tsv", &again))?;
        self.step("compare the dumps", || same(&dump, &again))?;
        println!("all {all} records are as they were");
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.arguments.folder.join(name)
    }

    fn step<T>(&self, what: &str, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let start = self.clock.now();
        let done = work().map_err(|error| format!("{what}: {error}"))?;
        println!("{what}: {:.1} s", (self.clock.now() - start) as f64 / 1e9);
        Ok(done)
    }

    /// Writes the records in the order of the file, and returns the hash of each line.
    fn write_input(&self, path: &Path) -> Outcome<HashSet<u64>> {
        let text = match &self.arguments.file {
            Some(file) => std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?,
            None => {
                let ran = Command::new("apt-cache").arg("dumpavail").stderr(Stdio::inherit()).output();
                ran.map_err(|error| format!("apt-cache cannot be started, name a file: {error}"))?.stdout
            }
        };
        let paragraphs = paragraphs(&text);
        if paragraphs.is_empty() {
            return Err("the file has no paragraphs: for the package index, run apt-get update first".into());
        }
        let mut out = BufWriter::new(File::create(path).map_err(|error| error.to_string())?);
        let mut lines = HashSet::default();
        let mut line = Vec::new();
        for number in 0..self.arguments.records {
            let (round, at) = (number / paragraphs.len() as u64, number as usize % paragraphs.len());
            let Some(value) = paragraphs.get(at) else { continue };
            let first = value.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let name = String::from_utf8_lossy(first.get(..first.len().min(100)).unwrap_or_default()).into_owned();
            let key = format!("{name}#{at}#{round}").into_bytes();
            line.clear();
            tsv::encode(&Entry { key: key.into(), value: (*value).into(), expiry_ms: None }, &mut line);
            out.write_all(&line).map_err(|error| error.to_string())?;
            lines.insert(hash(line.trim_ascii_end()));
        }
        out.flush().map_err(|error| error.to_string())?;
        Ok(lines)
    }

    fn memory(&self) -> String {
        format!("--local-memory-size={}", self.arguments.memory)
    }

    fn load_command(&self, input: &Path, format: &str, database: &Path) -> Vec<String> {
        let format = format!("--format={format}");
        let flags = ["load", &storage(database), &self.memory(), "--durability=storage=interval:100ms", &format];
        flags.map(str::to_owned).into_iter().chain([input.display().to_string()]).collect()
    }

    fn load(&self, input: &Path, format: &str, database: &Path) -> Outcome {
        output(self.forebay.program(), &self.load_command(input, format, database)).map(drop)
    }

    /// Loads until the database has a share of the file, and kills the process there.
    fn load_and_kill(&self, input: &Path, database: &Path, bytes: u64) -> Outcome {
        let mut command = Command::new(self.forebay.program());
        command.args(self.load_command(input, "tsv", database)).stdout(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
        let objects = database.join("default/segment");
        while folder_bytes(&objects) < bytes / 100 * KILLED_AT_PERCENT {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("it ended before it was killed: {status}; take more records"));
            }
            self.clock.sleep(PAUSE);
        }
        child.kill().and_then(|()| child.wait()).map(drop).map_err(|error| error.to_string())
    }

    fn dump(&self, database: &Path, format: &str, to: &Path) -> Outcome {
        let (format, to) = (format!("--format={format}"), to.display().to_string());
        self.run(&["dump", &storage(database), &self.memory(), &format, &to])
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        output(self.forebay.program(), &arguments).map(drop)
    }
}

/// Removes what is no longer needed, because this run takes much room.
fn remove(path: &Path) -> Outcome {
    std::fs::remove_file(path).map_err(|error| format!("removing {}: {error}", path.display()))
}

fn storage(database: &Path) -> String {
    format!("--storage={}", database.display())
}

fn paragraphs(text: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.windows(2).position(|pair| pair == b"\n\n");
        let (paragraph, after) = match end {
            Some(end) => (rest.get(..end), rest.get(end + 2..)),
            None => (Some(rest), None),
        };
        found.extend(paragraph.map(<[u8]>::trim_ascii).filter(|paragraph| !paragraph.is_empty()));
        rest = after.unwrap_or_default();
    }
    found
}

/// Two lines of a file have the same hash with a chance of one in 2^64.
fn hash(line: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(line)
}

/// Checks that each line of a dump is one of these, and occurs once. Returns how many there are.
fn compare(dump: &Path, lines: &HashSet<u64>) -> Outcome<u64> {
    let mut input = BufReader::new(File::open(dump).map_err(|error| error.to_string())?);
    let mut seen = HashSet::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line).map_err(|error| error.to_string())? == 0 {
            return Ok(seen.len() as u64);
        }
        let found = hash(line.trim_ascii_end());
        if !lines.contains(&found) || !seen.insert(found) {
            let start = String::from_utf8_lossy(line.get(..line.len().min(200)).unwrap_or_default()).into_owned();
            return Err(format!("a line that is not in the file, or twice: {start}"));
        }
    }
}

/// Checks that two files have the same bytes.
fn same(one: &Path, other: &Path) -> Outcome {
    let open = |path: &Path| File::open(path).map_err(|error| format!("{}: {error}", path.display()));
    let piece = |file: &mut File| {
        let mut bytes = Vec::with_capacity(PIECE_BYTES as usize);
        file.take(PIECE_BYTES).read_to_end(&mut bytes).map(|_| bytes).map_err(|error| error.to_string())
    };
    let (mut one, mut other) = (open(one)?, open(other)?);
    for number in 0.. {
        let (left, right) = (piece(&mut one)?, piece(&mut other)?);
        if left != right {
            return Err(format!("they differ behind byte {}", number * PIECE_BYTES));
        }
        if left.is_empty() {
            break;
        }
    }
    Ok(())
}

fn length(path: &Path) -> Outcome<u64> {
    std::fs::metadata(path).map(|about| about.len()).map_err(|error| format!("{}: {error}", path.display()))
}

/// Bytes of the files below a folder; some may come and go meanwhile.
fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let of = |path: PathBuf| if path.is_dir() { folder_bytes(&path) } else { length(&path).unwrap_or(0) };
    entries.flatten().map(|entry| of(entry.path())).sum()
}
