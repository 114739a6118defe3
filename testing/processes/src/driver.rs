//! Starts the processes, kills clients, starts them again, and checks the tree in the end.

use crate::common::{Outcome, READY, TREE, session};
use crate::journal::{Journal, Progress};
use crate::records::{CLIENTS, SHARED, key, number_of, parse_key, parse_value, place_of, value};
use forebay::tree::{Range, TreeStatistics};
use forebay::{MemoryClient, NodeAddress, Tree, TreeClient, TreeOptions};
use forebay_env::{Clock, Random, SystemClock};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How often processes are checked.
const LOOK: Duration = Duration::from_millis(5);
/// Time without an operation after which the run has failed.
const STANDSTILL: Duration = Duration::from_secs(60);
/// Kills after which the tree is verified while the clients work.
const VERIFY_EVERY: u64 = 4;
/// Most bytes that are lost when a client is killed: two batches of each size that it uses (leaves of 2 to 15 buckets,
/// inner nodes, staging blocks, lists, and values of three sizes), the nodes that it has not retired yet, and a chunk
/// that it has just taken.
const LOST_BY_A_KILL: u64 = 20 * 2 * (16 << 10) + 32 * 4096 + (64 << 10);

/// How much, and over what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Operations of all clients together.
    #[arg(long, default_value_t = 20_000_000)]
    operations: u64,
    /// What connects the processes.
    #[arg(long, value_enum, default_value_t = Fabric::Both)]
    memory: Fabric,
    /// Keys of each class; by default a hundredth of the operations, 200 to 200,000.
    #[arg(long)]
    keys: Option<u64>,
    /// Mean time between two kills, milliseconds.
    #[arg(long, default_value_t = 2500)]
    kill_every_ms: u64,
    /// Memory of the node, MiB.
    #[arg(long, default_value_t = 3072)]
    memory_mib: u64,
    /// Where randomness begins. When processes are killed depends on time, too.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Fabric {
    Shm,
    Tcp,
    Both,
}

/// Runs over each fabric.
///
/// # Errors
/// The first thing that is wrong.
pub fn execute(arguments: &Arguments) -> Outcome {
    for (fabric, name) in [(Fabric::Shm, "shared memory"), (Fabric::Tcp, "TCP")] {
        if arguments.memory == Fabric::Both || arguments.memory == fabric {
            let told = Run::start(arguments, fabric).and_then(|mut run| run.complete());
            println!("{name}: {}", told.map_err(|error| format!("{name}: {error}"))?);
        }
    }
    Ok(())
}

/// A process, which is killed when this is dropped.
struct Process(Child);

impl Process {
    fn start(arguments: &[String]) -> Outcome<Self> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        let started = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        started.map(Self).map_err(|error| format!("a process cannot be started: {error}"))
    }

    /// Waits until the process says that it is ready. Returns what else it says.
    fn wait_ready(&mut self, who: &str) -> Outcome<String> {
        let mut line = String::new();
        let out = self.0.stdout.take().ok_or_else(|| format!("{who} has no output"))?;
        BufReader::new(out).read_line(&mut line).map_err(|error| error.to_string())?;
        let said = line.trim().strip_prefix(READY).ok_or_else(|| format!("{who} did not start"))?;
        Ok(said.trim().to_owned())
    }

    /// Tells it to end, and waits until it has.
    fn end(&mut self) -> Outcome<ExitStatus> {
        drop(self.0.stdin.take());
        self.0.wait().map_err(|error| error.to_string())
    }

    /// Kills it (`kill -9`) and waits until it is gone. Returns how it ended if it had done so by itself.
    fn kill(&mut self) -> Option<ExitStatus> {
        // Fails when it has ended.
        let _ = self.0.kill();
        self.0.wait().ok().filter(|status| status.code().is_some())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A client's process.
struct ClientProcess {
    /// `None` when it is done.
    process: Option<Process>,
    life: u64,
}

/// A run over one fabric.
struct Run<'a> {
    arguments: &'a Arguments,
    clients: Vec<ClientProcess>,
    tree: TreeClient,
    session: Arc<MemoryClient>,
    address: NodeAddress,
    keys: u64,
    random: Random,
    clock: SystemClock,
    kills: u64,
    /// Leaves at each look at the tree.
    leaves: Vec<u64>,
    // Declared last, so that these outlive the others.
    _node: Process,
    folder: Folder,
}

impl<'a> Run<'a> {
    fn start(arguments: &'a Arguments, fabric: Fabric) -> Outcome<Self> {
        let folder = std::env::temp_dir().join(format!("forebay-tree-kill-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let folder = Folder(folder);
        let listen = match fabric {
            Fabric::Tcp => "tcp://127.0.0.1:0".to_owned(),
            Fabric::Shm | Fabric::Both => format!("shm:{}", folder.0.join("node").display()),
        };
        let mut node = Process::start(&["node".into(), listen, (arguments.memory_mib << 20).to_string()])?;
        let address = node.wait_ready("the memory node")?;
        let address: NodeAddress = address.parse().map_err(|error: forebay::Error| error.to_string())?;
        let sessions = session(&address, "driver")?;
        let tree = Tree::create(&sessions, TREE, TreeOptions::default()).and_then(|tree| tree.client());
        let [session] = sessions;
        let mut run = Self {
            arguments,
            clients: Vec::new(),
            tree: tree.map_err(|error| error.to_string())?,
            session,
            address,
            keys: arguments.keys.unwrap_or((arguments.operations / 100).clamp(200, 200_000)),
            random: Random::seeded(arguments.seed),
            clock: SystemClock::new(),
            kills: 0,
            leaves: Vec::new(),
            _node: node,
            folder,
        };
        for number in 0..CLIENTS {
            let process = Some(run.start_client(number, 0)?);
            run.clients.push(ClientProcess { process, life: 0 });
        }
        Ok(run)
    }

    fn journal(&self, number: u64) -> PathBuf {
        self.folder.0.join(format!("journal-{number}"))
    }

    /// Operations of each client.
    fn share(&self) -> u64 {
        self.arguments.operations / CLIENTS
    }

    /// Starts a client. It has a session from the return of this call until it is told to end or is
    /// killed.
    fn start_client(&self, number: u64, life: u64) -> Outcome<Process> {
        let mut words = vec!["client".into(), self.address.to_string(), self.journal(number).display().to_string()];
        words.extend([number, life, self.keys, self.share(), self.arguments.seed].map(|word| word.to_string()));
        let mut process = Process::start(&words)?;
        process.wait_ready(&format!("client {number} in life {life}"))?;
        Ok(process)
    }

    /// Kills and restarts clients until all are done; then checks the tree. Returns a summary.
    fn complete(&mut self) -> Outcome<String> {
        let began = self.clock.now();
        let mut next_kill = began + self.draw_pause();
        let (mut most_done, mut moved) = (0, began);
        while !self.are_done()? {
            self.clock.sleep(LOOK);
            let now = self.clock.now();
            if now >= next_kill {
                self.kill_one()?;
                next_kill = self.clock.now() + self.draw_pause();
            }
            if now - moved > STANDSTILL.as_nanos() as u64 / 10 {
                let Progress { done, read_back, .. } = self.progress()?;
                if done + read_back > most_done {
                    (most_done, moved) = (done + read_back, now);
                } else if now - moved > STANDSTILL.as_nanos() as u64 {
                    return Err(format!("nothing moves after {done} operations and {} kills", self.kills));
                }
            }
        }
        let seconds = (self.clock.now() - began) as f64 / 1e9;
        let statistics = self.verify()?;
        if statistics.unsettled > 0 {
            return Err(format!("replacements are not complete after the end: {statistics:?}"));
        }
        let (used, lost) = self.lost_bytes(&statistics)?;
        let per_death = lost / (self.kills + 1);
        if per_death > LOST_BY_A_KILL {
            return Err(format!("{lost} bytes are lost after {} kills: {per_death} bytes by each", self.kills));
        }
        let checked = self.check_all_keys()?;
        let Progress { done, checks, read_back } = self.progress()?;
        let (fewest, most) = (self.leaves.iter().min().unwrap_or(&0), self.leaves.iter().max().unwrap_or(&0));
        Ok(format!(
            "{done} operations of {CLIENTS} clients in {seconds:.0} s, {} kills, {checks} answers checked, \
             {read_back} keys read back after kills; {checked} keys right in the end; {} keys, {fewest} to {most} leaves, \
             {} levels, {:.1} MiB of nodes and values in {:.1} MiB of memory; {} KiB were lost by each client that died",
            self.kills,
            statistics.keys,
            statistics.height,
            statistics.bytes() as f64 / f64::from(1 << 20),
            used as f64 / f64::from(1 << 20),
            per_death >> 10,
        ))
    }

    fn draw_pause(&mut self) -> u64 {
        let mean = self.arguments.kill_every_ms.max(1) * 1_000_000;
        mean / 2 + self.random.below(mean)
    }

    /// Ends the clients that have done their share. Returns whether all have ended; fails if one
    /// failed.
    fn are_done(&mut self) -> Outcome<bool> {
        for number in 0..CLIENTS {
            let is_done = Progress::read(&self.journal(number))?.done >= self.share();
            let client = &mut self.clients[number as usize];
            let Some(process) = &mut client.process else { continue };
            let ended = match process.0.try_wait().map_err(|error| error.to_string())? {
                None if is_done => Some(process.end()?),
                ended => ended,
            };
            match ended {
                None => {}
                Some(status) if status.success() => client.process = None,
                Some(status) => return Err(format!("client {number} failed ({status}), see above")),
            }
        }
        Ok(self.clients.iter().all(|client| client.process.is_none()))
    }

    /// Kills a client at random, waits until the node has heard of it, and starts its next life.
    fn kill_one(&mut self) -> Outcome {
        let number = self.random.below(CLIENTS);
        let client = &mut self.clients[number as usize];
        let Some(process) = &mut client.process else { return Ok(()) };
        if let Some(status) = process.kill() {
            return Err(format!("client {number} failed ({status}), see above"));
        }
        client.life += 1;
        let life = client.life;
        self.kills += 1;
        // What the killed client had sent takes effect before its session ends, never after.
        let began = self.clock.now();
        while self.session.node_statistics().map_err(|error| error.to_string())?.lapsed_sessions < self.kills {
            if self.clock.now() - began > STANDSTILL.as_nanos() as u64 {
                return Err("the session of a killed client does not end".into());
            }
            self.clock.sleep(LOOK);
        }
        self.clients[number as usize].process = Some(self.start_client(number, life)?);
        if self.kills.is_multiple_of(VERIFY_EVERY) {
            self.verify()?;
        }
        Ok(())
    }

    fn verify(&mut self) -> Outcome<TreeStatistics> {
        let kills = self.kills;
        let statistics = self.tree.verify().map_err(|error| format!("verify after {kills} kills: {error}"))?;
        self.leaves.push(statistics.leaves);
        Ok(statistics)
    }

    /// Bytes of memory that were ever used, and how many of them are lost now that all clients have ended: they belong
    /// to no node or value, and are not free for all. Some of them are in the driver's stock.
    fn lost_bytes(&mut self, statistics: &TreeStatistics) -> Outcome<(u64, u64)> {
        let memory = self.tree.memory().map_err(|error| error.to_string())?;
        Ok((memory.used_bytes, memory.live_bytes().saturating_sub(statistics.bytes())))
    }

    fn open_journal(&self, number: u64) -> Outcome<Journal> {
        let path: &Path = &self.journal(number);
        Journal::open(path, 2 * self.keys)
    }

    fn progress(&self) -> Outcome<Progress> {
        let mut sum = Progress::default();
        for number in 0..CLIENTS {
            let Progress { done, checks, read_back } = Progress::read(&self.journal(number))?;
            sum.done += done;
            sum.checks += checks;
            sum.read_back += read_back;
        }
        Ok(sum)
    }

    /// Compares all keys, by a scan and by gets, with the journals. Returns how many there are.
    fn check_all_keys(&mut self) -> Outcome<u64> {
        let journals = (0..CLIENTS).map(|number| self.open_journal(number)).collect::<Outcome<Vec<_>>>()?;
        let mut scanned = std::collections::BTreeMap::new();
        for (key, value) in self.tree.scan(Range::all()).map_err(|error| error.to_string())? {
            let number = parse_key(&key).ok_or_else(|| format!("a key that nobody wrote: {key:02x?}"))?;
            scanned.insert(number, value);
        }
        let mut checked = 0;
        for class in 0..=SHARED {
            for index in 0..self.keys {
                let number = number_of(class, index);
                let found = self.tree.get(&key(number)).map_err(|error| error.to_string())?;
                if scanned.remove(&number) != found {
                    return Err(format!("key {number} is another one in a scan than in a get"));
                }
                if !is_possible(&journals, self.keys, number, found.as_deref()) {
                    return Err(format!("key {number} ended as {found:02x?}"));
                }
                checked += 1;
            }
        }
        match scanned.first_key_value() {
            Some((number, _)) => Err(format!("key {number} was never written")),
            None => Ok(checked),
        }
    }
}

/// Whether a key may have a value when all clients have ended.
fn is_possible(journals: &[Journal], keys: u64, number: u64, found: Option<&[u8]>) -> bool {
    let (class, index) = place_of(number);
    if let Some(journal) = journals.get(class as usize) {
        let state = journal.entry(index).after;
        return found == (state > 0).then(|| value(number, class, state)).as_deref();
    }
    let states: Vec<u64> = journals.iter().map(|journal| journal.entry(keys + index).after).collect();
    match found {
        // Some client's last write deleted it, or it never wrote.
        None => states.contains(&0),
        Some(bytes) => {
            parse_value(number, bytes).is_some_and(|(writer, version)| states.get(writer as usize) == Some(&version))
        }
    }
}
