//! Flags that several commands share.

use crate::output::Format;
use crate::units;
use clap::builder::BoolishValueParser;
use forebay::{LinkModel, NodeAddress};
use forebay_workload::Timing;
use std::fmt::{Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

/// Where the memory is.
#[derive(Debug, Clone, clap::Args)]
pub struct MemoryArguments {
    /// Where the memory node is: local (in this process), shm:<path> or tcp://<host>:<port>; several,
    /// separated by commas.
    #[arg(long, default_value = "local")]
    pub memory: NodeAddresses,
    /// Memory of the node with --memory=local.
    #[arg(long, default_value = "4GiB", value_parser = units::size, value_name = "SIZE")]
    pub local_memory_size: u64,
}

/// Addresses of memory nodes, separated by commas; at least one.
#[derive(Debug, Clone)]
pub struct NodeAddresses(Vec<NodeAddress>);

impl NodeAddresses {
    /// All of them.
    pub fn all(&self) -> &[NodeAddress] {
        &self.0
    }

    /// The first.
    pub fn first(&self) -> &NodeAddress {
        self.0.first().unwrap_or(&NodeAddress::Local)
    }

    /// Whether the memory node is of this process.
    pub fn is_local(&self) -> bool {
        matches!(self.0[..], [NodeAddress::Local])
    }
}

impl FromStr for NodeAddresses {
    type Err = forebay::Error;

    fn from_str(text: &str) -> Result<Self, forebay::Error> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Display for NodeAddresses {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let separators = std::iter::once("").chain(std::iter::repeat(","));
        self.0.iter().zip(separators).try_for_each(|(address, separator)| write!(f, "{separator}{address}"))
    }
}

/// What is looked at in every operation of a benchmark.
#[derive(Debug, Clone, clap::Args)]
pub struct CheckArguments {
    /// Check every value that is read. If not, `bench` makes values as cheaply as db_bench makes them.
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          value_parser = BoolishValueParser::new())]
    pub verify: bool,
    /// Time every call; if not, one of 64, which costs less.
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

/// How results are given.
#[derive(Debug, Clone, clap::Args)]
pub struct ReportArguments {
    /// How results are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Model a network of this round-trip time, such as 2us.
    #[arg(long, value_parser = units::duration, value_name = "TIME")]
    link_rtt: Option<Duration>,
    /// Model a network of this bandwidth, such as 100Gbps.
    #[arg(long, value_parser = units::bandwidth, value_name = "BANDWIDTH")]
    link_bandwidth: Option<f64>,
    /// Model a network adapter of so many operations a second, such as 30M.
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    link_rate: Option<f64>,
}

impl ReportArguments {
    /// The network to model; none if no flag asks for one. What is not given is as usual: 2 us,
    /// 100 Gb/s, 30 million operations a second.
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
