//! The remote services, by the scheme of their URL.

use super::runtime::Runtime;
use crate::options::StorageOptions;
use object_store::signer::Signer;
use object_store::{ObjectStore, Result};
use std::sync::Arc;

/// A service that takes requests.
pub(super) struct Service {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The same service, where it can sign names without a request for each.
    pub(super) signer: Option<Arc<dyn Signer>>,
    /// Whether its kind guarantees conditions ([`ObjectStorage::keeps_conditions`](super::ObjectStorage::keeps_conditions)).
    pub(super) keeps_conditions: bool,
}

/// The service of `scheme` at `authority`: a bucket, a container or a host. `None` if it is not built in.
#[cfg_attr(
    not(all(feature = "http", feature = "hdfs")),
    allow(unused_variables, reason = "a service uses some of what it is given")
)]
pub(super) fn service(
    scheme: &str,
    authority: &str,
    options: &StorageOptions,
    runtime: &Runtime,
) -> Result<Option<Service>> {
    // The name node refuses to rename a file to a name that exists.
    let by_rename = |store| Some(Service { store, signer: None, keeps_conditions: true });
    match scheme {
        #[cfg(feature = "s3")]
        "s3" => http::s3(authority, options).map(Some),
        #[cfg(feature = "gs")]
        "gs" => http::gs(authority, options).map(Some),
        #[cfg(feature = "az")]
        "az" => http::az(authority, options).map(Some),
        #[cfg(feature = "hdfs")]
        "hdfs" => hdfs(authority, options, runtime).map(by_rename),
        _ => Ok(None),
    }
}

/// Services that are reached by HTTP. Each takes settings from the environment; those of the options take precedence.
#[cfg(feature = "http")]
mod http {
    use super::{Arc, ObjectStore, Result, Service, Signer, StorageOptions};
    use object_store::{BackoffConfig, ClientConfigKey, RetryConfig};
    use std::str::FromStr;
    use std::time::Duration;

    /// A service that signs names, if it `signs`.
    fn by_http<S: ObjectStore + Signer>(service: S, signs: bool) -> Service {
        let store = Arc::new(service);
        let signer = signs.then(|| Arc::clone(&store) as Arc<dyn Signer>);
        // The service may not know the header that carries the condition.
        Service { store, signer, keeps_conditions: false }
    }

    /// Whether a setting that skips signatures is on: then there is no key, and nobody to ask for one.
    #[cfg(any(feature = "s3", feature = "az"))]
    fn is_on(setting: Option<String>) -> bool {
        setting.is_some_and(|value| matches!(&*value.to_ascii_lowercase(), "1" | "true" | "on" | "yes" | "y" | "t"))
    }

    #[cfg(feature = "s3")]
    pub(super) fn s3(bucket: &str, options: &StorageOptions) -> Result<Service> {
        use object_store::aws::{AmazonS3Builder as Builder, AmazonS3ConfigKey as Key, S3ConditionalPut};
        let builder = configured(Builder::from_env(), options, Key::Client, Builder::with_config)?
            .with_bucket_name(bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch);
        for key in [Key::Endpoint, Key::S3Endpoint] {
            check_endpoint(builder.get_config_value(&key))?;
        }
        // The user of a signed name would have to send the headers that ask for encryption.
        let encryption: Key = "aws_server_side_encryption".parse()?;
        let is_plain = builder.get_config_value(&encryption).is_none();
        let signs = is_plain && !is_on(builder.get_config_value(&Key::SkipSignature));
        Ok(by_http(builder.with_retry(retry(options)).build()?, signs))
    }

    #[cfg(feature = "gs")]
    pub(super) fn gs(bucket: &str, options: &StorageOptions) -> Result<Service> {
        use object_store::gcp::{GoogleCloudStorageBuilder as Builder, GoogleConfigKey as Key};
        let builder = configured(Builder::from_env(), options, Key::Client, Builder::with_config)?;
        // Without the key of a service account, each signature is a call to Google.
        let has_key = |key| builder.get_config_value(&key).is_some();
        let file = builder.get_config_value(&Key::ApplicationCredentials);
        let is_key = |path| std::fs::read_to_string(path).is_ok_and(|text| text.contains("\"private_key\""));
        let signs = has_key(Key::ServiceAccount) || has_key(Key::ServiceAccountKey) || file.is_some_and(is_key);
        Ok(by_http(builder.with_bucket_name(bucket).with_retry(retry(options)).build()?, signs))
    }

    #[cfg(feature = "az")]
    pub(super) fn az(container: &str, options: &StorageOptions) -> Result<Service> {
        use object_store::azure::{AzureConfigKey as Key, MicrosoftAzureBuilder as Builder};
        let builder = configured(Builder::from_env(), options, Key::Client, Builder::with_config)?;
        let signs = !is_on(builder.get_config_value(&Key::SkipSignature));
        Ok(by_http(builder.with_container_name(container).with_retry(retry(options)).build()?, signs))
    }

    /// Refuses an endpoint, if there is one, that is no URL: the library panics at the first request.
    #[cfg(feature = "s3")]
    fn check_endpoint(endpoint: Option<String>) -> Result<()> {
        let is_url = |text: &str| {
            reqwest::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        };
        let Some(endpoint) = endpoint.filter(|endpoint| !is_url(endpoint)) else { return Ok(()) };
        let detail = format!(
            "the endpoint {endpoint:?} is no URL: http://HOST:PORT, or https; without the setting, it is Amazon's"
        );
        Err(object_store::Error::Generic { store: "S3", source: detail.into() })
    }

    /// When the library retries. It stops early enough to say why, before the operation itself is given up. A pause
    /// that began in the first half of the operation's time ends in its third quarter.
    fn retry(options: &StorageOptions) -> RetryConfig {
        let defaults = BackoffConfig::default();
        // Not zero: the library draws a pause between the shortest and twice the one before.
        let max_backoff = (options.operation_timeout / 4).clamp(Duration::from_millis(1), defaults.max_backoff);
        let backoff = BackoffConfig { init_backoff: defaults.init_backoff.min(max_backoff), max_backoff, ..defaults };
        RetryConfig { max_retries: options.retries, retry_timeout: options.operation_timeout / 2, backoff }
    }

    /// A builder with what the options set. `K` names settings of its service, and those of its client by `client`.
    fn configured<B, K: FromStr<Err = object_store::Error>>(
        builder: B,
        options: &StorageOptions,
        client: impl FnOnce(ClientConfigKey) -> K,
        with: impl Fn(B, K, String) -> B,
    ) -> Result<B> {
        // The cryptography of TLS is the process's, and ring's unless somebody chose another before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A single setting: setting the client's options as a whole would replace those of the environment.
        let timeout = format!("{}ms", options.request_timeout.as_millis());
        let builder = with(builder, client(ClientConfigKey::Timeout), timeout);
        let mut settings = options.settings.iter();
        settings.try_fold(builder, |builder, (name, value)| {
            Ok(with(builder, name.to_ascii_lowercase().parse()?, value.clone()))
        })
    }
}

#[cfg(feature = "hdfs")]
fn hdfs(authority: &str, options: &StorageOptions, runtime: &Runtime) -> Result<Arc<dyn ObjectStore>> {
    let builder = hdfs_native_object_store::HdfsObjectStoreBuilder::new()
        .with_url(format!("hdfs://{authority}"))
        .with_config(options.settings.iter().cloned())
        .with_io_runtime(runtime.handle());
    Ok(Arc::new(builder.build()?))
}
