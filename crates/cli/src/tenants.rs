//! `forebay tenants`: who uses a memory node, and how much of it; and the file that says who may.

use crate::access::AccessArguments;
use crate::arguments::NodeAddresses;
use crate::failure::{Failure, Stage};
use crate::nodes;
use crate::output::{self, escaped};
use crate::units;
use forebay::NodeAddress;
use forebay_admin::metrics;
use forebay_admin::status::{Tenant, Visitors};
use forebay_memory_client::DoorFigures;
use forebay_memory_node::{Identity, Limits, TenantOptions, TenantRights, TenantsOptions};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Which memory node.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where the memory node is: shm:<path> or tcp://<host>:<port>.
    #[arg(long)]
    pub memory: NodeAddresses,
    #[command(flatten)]
    pub access: AccessArguments,
    /// How the figures are printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Forms of the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A table for people.
    Table,
    /// One JSON object.
    Json,
    /// The text format of Prometheus, with the tenant as a label.
    Metrics,
}

/// Prints the figures of a memory node's tenants.
///
/// # Errors
/// When the node cannot be reached, or the caller's tenant does not administer it.
pub fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { memory, format, .. } = arguments;
    let memory = memory.only("whose tenants are to be shown")?;
    if *memory == NodeAddress::Local {
        return Err(Failure::usage("--memory=local has no tenants: use shm:<path> or tcp://<host>:<port>"));
    }
    let client = nodes::session(memory, "forebay tenants")?;
    let page = client.list_tenants().map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
    let extent_bytes = client.extent_bytes();
    let tenants = page.tenants.iter().map(|figures| Tenant::of(figures, extent_bytes)).collect();
    let report = Report { tenants, connections: Connections::of(&page.door) };
    match format {
        Format::Table => table(&report),
        Format::Json => output::json(&report),
        Format::Metrics => output::line(metrics::tenants_text(report.tenants, Visitors::all(&page.door)).trim_end()),
    }
}

#[derive(Debug, Serialize)]
struct Report {
    tenants: Vec<Tenant>,
    connections: Connections,
}

/// Connections since the node began to listen.
#[derive(Debug, Serialize)]
struct Connections {
    admitted: u64,
    refused: u64,
    shown_out: u64,
    late: u64,
    crowded: u64,
    withdrawn: u64,
}

impl Connections {
    const fn of(door: &DoorFigures) -> Self {
        let DoorFigures { admitted, refused, shown_out, late, crowded, withdrawn } = *door;
        Self { admitted, refused, shown_out, late, crowded, withdrawn }
    }
}

fn table(report: &Report) -> Result<(), Failure> {
    output::line(&format!(
        "{:<24} {:>11} {:>11} {:>5} {:>9} {:>5} {:>8} {:>6} {:>6} {:>5} {:>11} {:>8} {:>8} {:>7} {:>7} {:>10}",
        "tenant",
        "memory MiB",
        "of MiB",
        "links",
        "endpoints",
        "of",
        "sessions",
        "stores",
        "shards",
        "jobs",
        "calls",
        "refused",
        "limited",
        "denied",
        "closed",
        "busy ms"
    ))?;
    for tenant in &report.tenants {
        output::line(&format!(
            "{:<24} {:>11} {:>11} {:>5} {:>9} {:>5} {:>8} {:>6} {:>6} {:>5} {:>11} {:>8} {:>8} {:>7} {:>7} {:>10}",
            escaped(&tenant.name),
            tenant.memory_bytes >> 20,
            tenant.most_memory_bytes >> 20,
            tenant.links,
            tenant.endpoints,
            tenant.most_endpoints.map_or_else(|| "–".to_owned(), |most| most.to_string()),
            tenant.sessions,
            tenant.stores,
            tenant.shards,
            tenant.jobs,
            tenant.calls,
            tenant.refused_calls,
            tenant.limited_calls,
            tenant.denied_calls,
            tenant.closed_links,
            (tenant.busy_seconds * 1e3) as u64
        ))?;
    }
    let Connections { admitted, refused, shown_out, late, crowded, withdrawn } = report.connections;
    output::line(&format!(
        "\nconnections: {admitted} let in, {refused} refused, {shown_out} shown out, {late} late, {crowded} too many, \
         {withdrawn} withdrawn"
    ))
}

/// The file of tenants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tenants: Vec<Entry>,
    #[serde(default)]
    others: Most,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    identities: Vec<String>,
    #[serde(default)]
    limits: Most,
    #[serde(default = "one")]
    weight: u32,
    #[serde(default = "data_only")]
    rights: Vec<Right>,
}

/// What a tenant may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Right {
    Data,
    Administer,
}

fn data_only() -> Vec<Right> {
    vec![Right::Data]
}

/// Limits as they are written: memory with a unit.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Most {
    memory: Option<String>,
    links: Option<u64>,
    endpoints: Option<u64>,
    sessions: Option<u64>,
    stores: Option<u64>,
    shards: Option<u64>,
    keys: Option<u64>,
    ranges: Option<u64>,
    jobs: Option<u64>,
    calls: Option<u64>,
}

const fn one() -> u32 {
    1
}

impl Most {
    fn limits(self) -> Result<Limits, String> {
        let size = |text: &str| units::size(text).map_err(|error| format!("{text:?} for memory: {error}"));
        let memory_bytes = self.memory.as_deref().map(size).transpose()?;
        let Self { links, endpoints, sessions, stores, shards, keys, ranges, jobs, calls, .. } = self;
        Ok(Limits { memory_bytes, links, endpoints, sessions, stores, shards, keys, ranges, jobs, calls })
    }
}

impl Entry {
    fn options(self) -> Result<TenantOptions, String> {
        let identities = self.identities.iter().map(|identity| Identity::listed(identity)).collect::<Result<_, _>>();
        let Self { name, weight, .. } = self;
        let identities = identities.map_err(|error| format!("tenant {name:?}: {error}"))?;
        let has = |right| self.rights.contains(&right);
        let rights = TenantRights { data: has(Right::Data), administer: has(Right::Administer) };
        Ok(TenantOptions { name, identities, limits: self.limits.limits()?, weight, rights })
    }
}

/// Reads a file of tenants.
///
/// # Errors
/// When the file cannot be read, or is wrong; the error says what would be right.
pub fn read(path: &Path) -> Result<TenantsOptions, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format_args!("--tenants {}: {error}", path.display())))?;
    parse(&text).map_err(|error| Failure::usage(format_args!("--tenants {}: {error}", path.display())))
}

fn parse(text: &str) -> Result<TenantsOptions, String> {
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let known = file.tenants.into_iter().map(Entry::options).collect::<Result<_, _>>()?;
    let tenants = TenantsOptions { known, others: file.others.limits()? };
    tenants.check().map_err(|error| error.to_string())?;
    Ok(tenants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_tenants() {
        let read = parse(
            r#"{"tenants": [
                {"name": "orders", "identities": ["certificate:orders", "secret:orders"], "weight": 2,
                 "limits": {"memory": "8GiB", "sessions": 64}},
                {"name": "operator", "identities": ["uid:0"], "rights": ["administer"]}],
                "others": {"memory": "0", "links": 8, "endpoints": 16}}"#,
        )
        .unwrap();
        assert_eq!(read.known.len(), 2);
        assert_eq!(read.known[0].limits.memory_bytes, Some(8 << 30));
        assert_eq!((read.known[0].limits.sessions, read.known[0].limits.shards), (Some(64), None));
        assert_eq!((read.known[0].weight, read.known[1].weight), (2, 1));
        assert_eq!(read.known[0].rights, TenantRights { data: true, administer: false });
        assert_eq!(read.known[1].rights, TenantRights { data: false, administer: true });
        assert_eq!((read.others.memory_bytes, read.others.links, read.others.endpoints), (Some(0), Some(8), Some(16)));
        for (wrong, what) in [
            (r#"{"tenants": [{"name": "a b", "identities": []}]}"#, "letters"),
            (
                r#"{"tenants": [{"name": "a", "identities": ["uid:7"]}, {"name": "b", "identities": ["uid:7"]}]}"#,
                "two tenants",
            ),
            (
                r#"{"tenants": [{"name": "a", "identities": ["foo:x"]}]}"#,
                "tenant \"a\": \"foo:x\" is no identity: use certificate:NAME",
            ),
            (r#"{"tenants": [{"name": "a", "identities": [], "rights": ["all"]}]}"#, "`data` or `administer`"),
            (r#"{"tenants": [{"name": "a", "identities": [], "limit": {}}]}"#, "unknown field `limit`"),
            (r#"{"tenants": [{"name": "a", "identities": [], "limits": {"memory": "many"}}]}"#, "many"),
            ("{", "EOF"),
        ] {
            let said = parse(wrong).unwrap_err();
            assert!(said.contains(what), "{said}");
        }
    }
}
