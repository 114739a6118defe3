//! Storage that a test uses alone.

use crate::servers::{
    AZURITE_ACCOUNT, SEAWEEDFS_KEY, Server, azurite, google, hdfs, moto, scratch, seaweedfs, seaweedfs_with_a_key,
};
use forebay_storage::{Storage, StorageOptions};
use std::path::PathBuf;

/// A folder, or a server that the test started. It is removed with its contents when this is dropped.
#[derive(Debug)]
pub struct Place {
    url: String,
    /// Settings that are needed in addition to the URL.
    settings: Vec<(&'static str, String)>,
    /// Runs while this lives.
    _server: Option<Server>,
    folder: Option<PathBuf>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

impl Place {
    /// A temporary folder.
    #[must_use]
    pub fn folder() -> Self {
        let folder = scratch("place");
        let url = format!("file://{}", folder.display());
        Self { url, settings: Vec::new(), _server: None, folder: Some(folder) }
    }

    /// The bucket of moto's S3.
    #[must_use]
    pub fn moto() -> Self {
        Self::s3(moto(), ("test", "test"))
    }

    /// The bucket of SeaweedFS's S3.
    #[must_use]
    pub fn seaweedfs() -> Self {
        Self::s3(seaweedfs(), ("test", "test"))
    }

    /// The same, where each request must be signed with the key of the settings.
    #[must_use]
    pub fn seaweedfs_with_a_key() -> Self {
        Self::s3(seaweedfs_with_a_key(), SEAWEEDFS_KEY)
    }

    fn s3(server: Server, (key, secret): (&str, &str)) -> Self {
        let settings = vec![
            ("aws_endpoint", format!("http://127.0.0.1:{}", server.port)),
            ("aws_allow_http", "true".to_owned()),
            ("aws_region", "us-east-1".to_owned()),
            ("aws_access_key_id", key.to_owned()),
            ("aws_secret_access_key", secret.to_owned()),
        ];
        Self { url: "s3://forebay".to_owned(), settings, _server: Some(server), folder: None }
    }

    /// The bucket of a store like Google's.
    #[must_use]
    pub fn google() -> Self {
        let server = google();
        let settings = vec![
            ("google_base_url", format!("http://127.0.0.1:{}", server.port)),
            ("google_allow_http", "true".to_owned()),
            ("google_bearer_token", "test".to_owned()),
        ];
        Self { url: "gs://forebay".to_owned(), settings, _server: Some(server), folder: None }
    }

    /// The container of Azurite.
    #[must_use]
    pub fn azure() -> Self {
        let server = azurite();
        let (account, key) = AZURITE_ACCOUNT;
        let settings = vec![
            ("azure_storage_endpoint", format!("http://127.0.0.1:{}/{account}", server.port)),
            ("azure_allow_http", "true".to_owned()),
            ("azure_storage_account_name", account.to_owned()),
            ("azure_storage_account_key", key.to_owned()),
        ];
        Self { url: "az://forebay".to_owned(), settings, _server: Some(server), folder: None }
    }

    /// An HDFS.
    #[must_use]
    pub fn hdfs() -> Self {
        let server = hdfs();
        let url = format!("hdfs://127.0.0.1:{}", server.port);
        Self { url, settings: Vec::new(), _server: Some(server), folder: None }
    }

    /// Whether a server provides it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.folder.is_none()
    }

    /// The URL of a part of it.
    #[must_use]
    pub fn url(&self, part: &str) -> String {
        format!("{}/{part}", self.url)
    }

    /// The options for opening it.
    #[must_use]
    pub fn options(&self) -> StorageOptions {
        let settings = self.settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        StorageOptions { settings, ..StorageOptions::default() }
    }

    /// The settings as environment variables, for other processes.
    pub fn variables(&self) -> impl Iterator<Item = (String, &str)> {
        self.settings.iter().map(|(name, value)| (name.to_ascii_uppercase(), value.as_str()))
    }

    /// Opens a part of it.
    ///
    /// # Panics
    /// When it cannot be opened.
    #[must_use]
    pub fn open(&self, part: &str) -> Storage {
        Storage::open(&self.url(part), self.options()).expect("storage that runs can be opened")
    }
}
