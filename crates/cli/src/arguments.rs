//! Flags that several commands share.

use crate::access::AccessArguments;
use crate::failure::Failure;
use crate::output::Format;
use crate::units;
use clap::builder::BoolishValueParser;
use forebay::{LinkModel, NodeAddress};
use forebay_workload::Timing;
use std::fmt::{Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

/// Memory for inner nodes of a shared tree, unless a flag says something else.
pub const TREE_CACHE_BYTES: usize = 256 << 20;

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// An LSM database, which one process writes.
    Lsm,
    /// A shared tree, which lies in memory nodes alone.
    Tree,
}

/// The memory that a command uses.
#[derive(Debug, Clone, clap::Args)]
pub struct MemoryArguments {
    /// Address of the memory node: local (in this process), shm:<path> or tcp://<host>:<port>; several are separated by
    /// commas.
    #[arg(long, default_value = "local")]
    pub memory: NodeAddresses,
    #[command(flatten)]
    pub access: AccessArguments,
    /// Memory of the node with --memory=local.
    #[arg(long, default_value = "4GiB", value_parser = units::node_memory, value_name = "SIZE")]
    pub local_memory_size: u64,
}

impl MemoryArguments {
    /// Returns the addresses, and how to reach them.
    pub fn parts(&mut self) -> (&mut NodeAddresses, &AccessArguments) {
        (&mut self.memory, &self.access)
    }
}

/// Addresses of memory nodes, separated by commas; at least one.
#[derive(Debug, Clone)]
pub struct NodeAddresses(Vec<NodeAddress>);

impl NodeAddresses {
    /// All addresses.
    pub fn all(&self) -> &[NodeAddress] {
        &self.0
    }

    /// The first address.
    pub fn first(&self) -> &NodeAddress {
        self.0.first().unwrap_or(&NodeAddress::Local)
    }

    /// Sets how to reach the nodes, as flags and variables say.
    ///
    /// # Errors
    /// When flags have no use for these addresses, or a variable does not hold what it should.
    pub fn set_access(&mut self, access: &AccessArguments) -> Result<(), Failure> {
        if access.is_given() && !self.are_over_tcp() {
            return Err(Failure::usage(
                "certificates and secrets are for nodes at tcp:// addresses, and --memory has none",
            ));
        }
        self.set_access_over_tcp(access)
    }

    /// The same, where flags may be for other nodes.
    ///
    /// # Errors
    /// When a variable does not hold what it should.
    pub fn set_access_over_tcp(&mut self, access: &AccessArguments) -> Result<(), Failure> {
        if !self.are_over_tcp() {
            return Ok(());
        }
        let options = access.options()?;
        for address in &mut self.0 {
            *address = address.clone().with_access(options.clone());
        }
        Ok(())
    }

    /// Whether a node is reached over TCP.
    pub fn are_over_tcp(&self) -> bool {
        self.0.iter().any(|address| matches!(address, NodeAddress::Tcp { .. }))
    }

    /// Returns the same addresses, reached in the same way as the first tcp:// address of `others`.
    pub fn as_reached(&self, others: &Self) -> Vec<NodeAddress> {
        let access = others.0.iter().find_map(|address| match address {
            NodeAddress::Tcp { access, .. } => Some(access),
            _ => None,
        });
        let reached = |address: &NodeAddress| match access {
            Some(access) => address.clone().with_access(access.clone()),
            None => address.clone(),
        };
        self.0.iter().map(reached).collect()
    }

    /// Returns the only address, for a command about a single node, which `what` names.
    ///
    /// # Errors
    /// Usage, when there are several.
    pub fn only(&self, what: &str) -> Result<&NodeAddress, Failure> {
        match self.all() {
            [address] => Ok(address),
            _ => Err(Failure::usage(format_args!("--memory: name one memory node, {what}"))),
        }
    }

    /// Checks that all addresses are of other processes; `flag` named them.
    ///
    /// # Errors
    /// Usage, for `local`.
    pub fn check_remote(&self, flag: &str) -> Result<(), Failure> {
        if self.0.contains(&NodeAddress::Local) {
            return Err(Failure::usage(format_args!(
                "{flag}=local is of this process, and no database uses it: use shm:<path> or tcp://<host>:<port>"
            )));
        }
        Ok(())
    }

    /// Returns the addresses that answer now, if any does.
    pub fn that_answer(&self) -> Option<Self> {
        let answering: Vec<_> = self.0.iter().filter(|address| forebay::connect(address).is_ok()).cloned().collect();
        (!answering.is_empty()).then_some(Self(answering))
    }

    /// Whether the memory node is in this process.
    pub fn is_local(&self) -> bool {
        matches!(self.0[..], [NodeAddress::Local])
    }
}

impl FromStr for NodeAddresses {
    type Err = forebay::Error;

    fn from_str(text: &str) -> Result<Self, forebay::Error> {
        let addresses = text.split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
        if addresses.len() > 1 && addresses.contains(&NodeAddress::Local) {
            let message =
                "local is the one memory node of this process: name nodes of other processes beside each other";
            return Err(forebay::Error::Address(message.to_owned()));
        }
        Ok(Self(addresses))
    }
}

impl Display for NodeAddresses {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let separators = std::iter::once("").chain(std::iter::repeat(","));
        self.0.iter().zip(separators).try_for_each(|(address, separator)| write!(f, "{separator}{address}"))
    }
}

/// Checks and timing of every operation of a benchmark.
#[derive(Debug, Clone, clap::Args)]
pub struct CheckArguments {
    /// Check every value that is read. If not, `bench` makes values as cheaply as db_bench makes them.
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new())]
    pub verify: bool,
    /// Time every call; if not, one call in 64, which costs less.
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new())]
    histogram: bool,
}

impl CheckArguments {
    /// Which calls are timed.
    pub fn timing(&self) -> Timing {
        if self.histogram { Timing::Each } else { Timing::Sampled }
    }
}

/// The form of the results.
#[derive(Debug, Clone, clap::Args)]
pub struct ReportArguments {
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Model a network with this round-trip time, such as 2us.
    #[arg(long, value_parser = units::duration, value_name = "TIME")]
    link_rtt: Option<Duration>,
    /// Model a network with this bandwidth, such as 100Gbps.
    #[arg(long, value_parser = units::bandwidth, value_name = "BANDWIDTH")]
    link_bandwidth: Option<f64>,
    /// Model a network adapter with this many operations per second, such as 30M.
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    link_rate: Option<f64>,
}

impl ReportArguments {
    /// Returns the network to model; none if no flag requests one. Defaults for the other flags: 2 us, 100 Gb/s, 30
    /// million operations a second.
    pub fn model(&self) -> Option<LinkModel> {
        if self.link_rtt.is_none() && self.link_bandwidth.is_none() && self.link_rate.is_none() {
            return None;
        }
        let usual = LinkModel::default();
        Some(LinkModel {
            round_trip: self.link_rtt.unwrap_or(usual.round_trip),
            bits_per_second: self.link_bandwidth.unwrap_or(usual.bits_per_second),
            operations_per_second: self.link_rate.unwrap_or(usual.operations_per_second),
        })
    }
}
