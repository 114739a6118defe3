//! How this process and memory nodes prove who they are to each other: with files named by flags, or by variables where
//! no flag is given. A secret itself is never an argument, because everybody on the machine may see arguments.

use crate::failure::{Failure, Stage};
use forebay::admission::{AccessOptions, Admission, AdmissionOptions, Secret, Secrets, Users};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// The flags of a client, whose variables are read here.
pub const FLAGS: [&str; 5] = ["tls-authority", "tls-name", "tls-certificate", "tls-key", "secret-file"];

/// Where the flags of a client are in the help. Each flag names it: a heading of the whole group would also be that of
/// the flags that follow the group.
const OF_CLIENTS: &str = "Access to memory nodes over TCP";
/// Where the flags of a memory node are in the help.
const OF_NODES: &str = "Who may connect";

/// Flags of a client, and the variables in their place.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AccessArguments {
    /// PEM file: authorities that sign the certificates of nodes; speak TLS [variable: FOREBAY_TLS_AUTHORITY].
    #[arg(long, value_name = "FILE", help_heading = OF_CLIENTS)]
    tls_authority: Option<PathBuf>,
    /// Name that a node's certificate must be for, if not the host of its address [FOREBAY_TLS_NAME].
    #[arg(long, value_name = "NAME", help_heading = OF_CLIENTS)]
    tls_name: Option<String>,
    /// PEM file: the certificate that this process shows [FOREBAY_TLS_CERTIFICATE].
    #[arg(long, value_name = "FILE", help_heading = OF_CLIENTS)]
    tls_certificate: Option<PathBuf>,
    /// PEM file: the key of that certificate [FOREBAY_TLS_KEY].
    #[arg(long, value_name = "FILE", help_heading = OF_CLIENTS)]
    tls_key: Option<PathBuf>,
    /// File with a line: a name, a space, and the secret that this process shares with the node [FOREBAY_SECRET_FILE;
    /// the line itself in FOREBAY_SECRET].
    #[arg(long, value_name = "FILE", help_heading = OF_CLIENTS)]
    secret_file: Option<PathBuf>,
}

impl AccessArguments {
    /// Whether there is a flag.
    pub fn is_given(&self) -> bool {
        let Self { tls_authority, tls_name, tls_certificate, tls_key, secret_file } = self;
        tls_authority.is_some()
            || tls_name.is_some()
            || tls_certificate.is_some()
            || tls_key.is_some()
            || secret_file.is_some()
    }

    /// Returns what flags and variables say.
    ///
    /// # Errors
    /// When a variable does not hold what it should.
    pub fn options(&self) -> Result<AccessOptions, Failure> {
        self.options_with(&environment)
    }

    fn options_with(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<AccessOptions, Failure> {
        let file = |flag: &Option<PathBuf>, name: &str| flag.clone().or_else(|| variable(name).map(PathBuf::from));
        let said = |name: &str| variable(name).map(|value| text(name, value)).transpose();
        let secret_file = file(&self.secret_file, "FOREBAY_SECRET_FILE");
        // A flag comes before its variable.
        let secret = if self.secret_file.is_none() { said("FOREBAY_SECRET")? } else { None };
        let node_name = if self.tls_name.is_none() { said("FOREBAY_TLS_NAME")? } else { None };
        let secret = secret.as_deref().map(only).transpose()?;
        Ok(AccessOptions {
            authority: file(&self.tls_authority, "FOREBAY_TLS_AUTHORITY"),
            node_name: self.tls_name.clone().or(node_name),
            certificate: file(&self.tls_certificate, "FOREBAY_TLS_CERTIFICATE"),
            key: file(&self.tls_key, "FOREBAY_TLS_KEY"),
            secret_file,
            secret,
        })
    }
}

fn only(line: &str) -> Result<Secret, Failure> {
    let secrets = Secrets::parse(line, "FOREBAY_SECRET").map_err(Failure::usage)?;
    secrets.only().cloned().ok_or_else(|| Failure::usage("FOREBAY_SECRET has one line: a name, a space and a secret"))
}

/// Returns a variable, if it is set and not empty.
pub fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the value of the variable of this name as text.
///
/// # Errors
/// When it is no UTF-8.
pub fn text(name: &str, value: OsString) -> Result<String, Failure> {
    value.into_string().map_err(|_| Failure::usage(format_args!("the value of the variable {name} is no UTF-8")))
}

/// Flags of a memory node, and the variables in their place.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AdmissionArguments {
    /// TCP: PEM file with the node's certificate; speak TLS, and nothing else [variable: FOREBAY_NODE_CERTIFICATE].
    #[arg(long, value_name = "FILE", help_heading = OF_NODES)]
    tls_certificate: Option<PathBuf>,
    /// TCP: PEM file with the key of that certificate [FOREBAY_NODE_KEY].
    #[arg(long, value_name = "FILE", help_heading = OF_NODES)]
    tls_key: Option<PathBuf>,
    /// TCP: PEM file with authorities whose certificates clients may show [FOREBAY_NODE_CLIENT_AUTHORITY].
    #[arg(long, value_name = "FILE", help_heading = OF_NODES)]
    tls_client_authority: Option<PathBuf>,
    /// TCP: PEM file with lists of clients' certificates that were revoked [FOREBAY_NODE_CLIENT_REVOCATIONS].
    #[arg(long, value_name = "FILE", help_heading = OF_NODES)]
    tls_client_revocations: Option<PathBuf>,
    /// TCP: file with the secrets that clients may have, a line each: a name, a space, the secret
    /// [FOREBAY_NODE_SECRETS_FILE; the lines themselves in FOREBAY_NODE_SECRETS].
    #[arg(long, value_name = "FILE", help_heading = OF_NODES)]
    secrets_file: Option<PathBuf>,
    /// Shared memory: numbers of users whose processes may connect, separated by commas; without, the node's own.
    #[arg(long, value_delimiter = ',', value_name = "UID", help_heading = OF_NODES)]
    allow_uid: Vec<u32>,
    /// Shared memory: numbers of groups whose processes may connect.
    #[arg(long, value_delimiter = ',', value_name = "GID", help_heading = OF_NODES)]
    allow_gid: Vec<u32>,
}

impl AdmissionArguments {
    /// Returns what the node asks of clients; `None` if no flag or variable says so.
    ///
    /// # Errors
    /// When files do not hold what they should, or flags do not go together.
    pub fn load(&self) -> Result<Option<Arc<Admission>>, Failure> {
        let Some(options) = self.options(&environment)? else { return Ok(None) };
        let admission = Admission::load(options).map_err(|error| Failure::new(error.kind(), Stage::Start, error))?;
        Ok(Some(Arc::new(admission)))
    }

    fn options(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Option<AdmissionOptions>, Failure> {
        let file = |flag: &Option<PathBuf>, name: &str| flag.clone().or_else(|| variable(name).map(PathBuf::from));
        let lines = variable("FOREBAY_NODE_SECRETS").map(|lines| text("FOREBAY_NODE_SECRETS", lines)).transpose()?;
        let options = AdmissionOptions {
            certificate: file(&self.tls_certificate, "FOREBAY_NODE_CERTIFICATE"),
            key: file(&self.tls_key, "FOREBAY_NODE_KEY"),
            client_authority: file(&self.tls_client_authority, "FOREBAY_NODE_CLIENT_AUTHORITY"),
            client_revocations: file(&self.tls_client_revocations, "FOREBAY_NODE_CLIENT_REVOCATIONS"),
            secret_file: file(&self.secrets_file, "FOREBAY_NODE_SECRETS_FILE"),
            secrets: Secrets::parse(&lines.unwrap_or_default(), "FOREBAY_NODE_SECRETS").map_err(Failure::usage)?,
        };
        let AdmissionOptions { certificate, key, client_authority, client_revocations, secret_file, secrets } =
            &options;
        let files = [certificate, key, client_authority, client_revocations, secret_file];
        let is_given = files.into_iter().any(Option::is_some) || !secrets.is_empty();
        Ok(is_given.then_some(options))
    }

    /// Who may connect over shared memory.
    pub fn users(&self) -> Users {
        Users { uids: self.allow_uid.clone(), gids: self.allow_gid.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "alice 0123456789abcdef0123456789abcdef";

    #[test]
    fn flags_come_before_variables() {
        let variable = |name: &str| match name {
            "FOREBAY_SECRET" => Some(OsString::from(LINE)),
            "FOREBAY_TLS_AUTHORITY" | "FOREBAY_TLS_NAME" => Some("variable".into()),
            _ => None,
        };
        let flags = AccessArguments { tls_authority: Some("flag".into()), ..Default::default() };
        let options = flags.options_with(&variable).unwrap();
        assert_eq!((options.authority, options.node_name), (Some("flag".into()), Some("variable".into())));
        assert_eq!(options.secret.unwrap().name().as_str(), "alice");
        let flags = AccessArguments { secret_file: Some("flag".into()), ..Default::default() };
        let options = flags.options_with(&variable).unwrap();
        assert_eq!((options.secret_file, options.secret), (Some("flag".into()), None));
        let without = flags.options_with(&|_| None).unwrap();
        assert!(without.authority.is_none());
    }

    #[test]
    fn a_node_of_which_nothing_is_said_asks_nobody() {
        let flags = AdmissionArguments::default();
        assert!(flags.options(&|_| None).unwrap().is_none());
        let variable = |name: &str| (name == "FOREBAY_NODE_SECRETS").then(|| OsString::from(LINE));
        assert!(!flags.options(&variable).unwrap().unwrap().secrets.is_empty());
        let unfit = |name: &str| (name == "FOREBAY_NODE_SECRETS").then(|| OsString::from("alice short-secret"));
        let said = flags.options(&unfit).unwrap_err().message;
        assert!(said.contains("FOREBAY_NODE_SECRETS") && !said.contains("short-secret"), "{said}");
    }
}
