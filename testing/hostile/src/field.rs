//! A memory node in a process of its own, and an honest tenant who uses it. Both tenants prove who they are with a
//! secret.

use forebay_env::{Clock, SystemClock};
use forebay_fabric::admission::{Access, Admission, AdmissionOptions, Secrets};
use forebay_fabric::{Link, tcp};
use forebay_memory_client::{ClientOptions, MemoryClient, TenantFigures};
use forebay_memory_node::{Identity, Limits, MemoryNode, Options, TenantOptions, TenantRights, TenantsOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The name and the secret of the honest tenant, where the node asks for them.
pub const HONEST: (&str, &str) = ("honest", "0123456789abcdef0123456789abcdef");
/// The name and the secret of the hostile tenant.
pub const HOSTILE: (&str, &str) = ("hostile", "fedcba9876543210fedcba9876543210");

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A process of the field: this program, in another role.
#[derive(Debug)]
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node under attack, and the tenant who must not notice.
#[derive(Debug)]
pub struct Field {
    node: Process,
    address: String,
    /// The honest one's session.
    pub victim: Arc<MemoryClient>,
}

impl Field {
    /// Starts a node, as this program with `--serve`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start() -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut node = Process(command.arg("--serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let mut line = String::new();
        BufReader::new(node.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let address = line.trim().to_owned();
        let secret = Secrets::parse(&line_of(HONEST), "the field")?.only().cloned();
        let access = Access::load(&forebay_fabric::admission::AccessOptions { secret, ..Default::default() })?;
        let link: Arc<dyn Link> = tcp::connect(&address, tcp::Options { access, ..tcp::Options::default() })?;
        let patient = ClientOptions { timeout: Duration::from_secs(60), ..ClientOptions::default() };
        let victim = MemoryClient::connect(link, "honest", patient)?;
        Ok(Self { node, address, victim })
    }

    /// Starts the attackers, as this program with `--attack`, until they are dropped. They stand for other machines:
    /// their process has the idle priority, so it gets the processor time that the node and the honest one leave.
    ///
    /// # Errors
    /// When they do not start, perhaps because the command `chrt` is missing.
    pub fn attackers(&self, attacks: &[&str]) -> Result<Process, Failure> {
        let mut command = Command::new("chrt");
        command.args(["--idle", "0"]).arg(std::env::current_exe()?);
        command.args(["--attack", &self.address, "--only", &attacks.join(",")]).stdin(Stdio::null());
        Ok(Process(command.spawn().map_err(|error| format!("chrt, of util-linux: {error}"))?))
    }

    /// Resident memory of the node's process, bytes.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn resident_bytes(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.node.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the node has ended")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
    }

    /// What the node has counted for a tenant.
    ///
    /// # Errors
    /// When the node does not say.
    pub fn figures(&self, name: &str) -> Result<TenantFigures, Failure> {
        let figures = self.victim.list_tenants()?;
        figures.tenants.into_iter().find(|figures| figures.name.as_str() == name).ok_or_else(|| "no such tenant".into())
    }

    /// Checks that the honest one has lost nothing.
    ///
    /// # Errors
    /// When it has lost something.
    pub fn check(&self) -> Result<(), Failure> {
        self.victim.check()?;
        let it = self.figures("honest")?;
        let lost = (it.lapsed_sessions, it.limited_calls, it.denied_calls, it.closed_links);
        if lost == (0, 0, 0, 0) { Ok(()) } else { Err(format!("the honest one lost something: {it:?}").into()) }
    }

    /// Stops the node.
    ///
    /// # Errors
    /// When it failed.
    pub fn stop(mut self) -> Result<(), Failure> {
        drop(self.node.0.stdin.take());
        let clock = SystemClock::new();
        for _ in 0..6000 {
            match self.node.0.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the node failed: {status}").into()),
                None => clock.sleep(Duration::from_millis(10)),
            }
        }
        Err("the node does not stop".into())
    }
}

fn line_of((name, value): (&str, &str)) -> String {
    format!("{name} {value}\n")
}

/// Runs the node: prints its address, and serves until standard input ends.
///
/// # Errors
/// When it cannot.
pub fn serve() -> Result<(), Failure> {
    let identity = |name: &str| Identity::new(&format!("secret:{name}")).map(|identity| vec![identity]);
    let rights = TenantRights { data: true, administer: true };
    let limits = Limits { memory_bytes: Some(256 << 20), ..Limits::default() };
    let known = vec![
        TenantOptions { rights, ..TenantOptions::new("honest", identity(HONEST.0)?) },
        TenantOptions { limits, ..TenantOptions::new("hostile", identity(HOSTILE.0)?) },
    ];
    let secrets = Secrets::parse(&(line_of(HONEST) + &line_of(HOSTILE)), "the field")?;
    let admission = Admission::load(AdmissionOptions { secrets, ..AdmissionOptions::default() })?;
    let listen = tcp::Options { admission: Some(Arc::new(admission)), ..tcp::Options::default() };
    let listener = tcp::listen(SocketAddr::from(([127, 0, 0, 1], 0)), 1, listen)?;
    let options = Options {
        extent_bytes: Some(2 << 20),
        tenants: TenantsOptions { known, others: Limits::default() },
        // Registered memory is resident from the beginning, so that any growth is the node's own.
        commit: true,
        ..Options::with_memory(512 << 20)
    };
    let node = MemoryNode::start(Box::new(listener), options)?;
    writeln!(std::io::stdout(), "{}", node.address())?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(node.shutdown()?)
}
