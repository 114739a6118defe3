//! How storage is reached.

use crate::log::{FileLogOptions, ObjectLogOptions};
use std::fmt;
use std::time::Duration;

/// How storage is reached. The default is right for a directory.
#[derive(Clone)]
pub struct StorageOptions {
    /// Whether to create a missing directory. A process that only reads does not want that.
    pub create_directory: bool,
    /// Layout of logs in files.
    pub file_log: FileLogOptions,
    /// Layout of logs in objects.
    pub object_log: ObjectLogOptions,
    /// How long one operation on a remote store may take, with all its retries.
    pub operation_timeout: Duration,
    /// How long one request to a remote store may take.
    pub request_timeout: Duration,
    /// How often a request that a remote store refused for the moment is sent again. None is begun after half of
    /// [`StorageOptions::operation_timeout`], so that the error says why.
    pub retries: usize,
    /// Settings of the back end by name, in addition to those of the environment: for HDFS those of Hadoop's configuration,
    /// for the others those of crate `object_store` (`aws_endpoint`, `google_service_account`, `azure_storage_account_key`,
    /// …).
    pub settings: Vec<(String, String)>,
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self {
            create_directory: true,
            file_log: FileLogOptions::default(),
            object_log: ObjectLogOptions::default(),
            operation_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(30),
            retries: 8,
            settings: Vec::new(),
        }
    }
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be credentials.
        let names: Vec<&str> = self.settings.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("StorageOptions")
            .field("create_directory", &self.create_directory)
            .field("file_log", &self.file_log)
            .field("object_log", &self.object_log)
            .field("operation_timeout", &self.operation_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("retries", &self.retries)
            .field("settings", &names)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_shown() {
        let settings = vec![("aws_secret_access_key".to_owned(), "hush".to_owned())];
        let shown = format!("{:?}", StorageOptions { settings, ..Default::default() });
        assert!(shown.contains("aws_secret_access_key") && !shown.contains("hush"), "{shown}");
    }
}
