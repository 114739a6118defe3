//! Traces for a collector of OpenTelemetry: what commands, flushes, compactions and jobs were made of, and how long each
//! part took.
//!
//! Spans have the target [`TARGET`]. A span at level DEBUG may begin a trace: a run of commands, a flush, a compaction,
//! a job. A span at level TRACE is a part of a trace, and is not recorded without one. A share of the traces that could
//! begin is chosen before a span is made, so those not chosen cost little. Without `--traces` nothing is chosen, and
//! the spans are never looked at. Spans name commands and count things, and hold nothing that clients sent.

use crate::failure::{Failure, Stage};
use async_trait::async_trait;
use forebay_base::ErrorKind;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// The target of spans of traces.
const TARGET: &str = "forebay_trace";
/// How long the collector may take for a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Where the flags are in the help.
const HEADING: &str = "Traces";
/// The path at which a collector takes traces, unless the URL has a path.
const PATH: &str = "/v1/traces";

/// Where traces go, and how many.
#[derive(Debug, Clone, clap::Args)]
pub struct TraceArguments {
    /// Send traces to the collector at this address, which speaks OTLP over HTTP, such as http://127.0.0.1:4318.
    #[arg(long, value_name = "URL", help_heading = HEADING)]
    traces: Option<String>,
    /// How many of all commands, flushes, compactions and jobs are traced, from 0 to 1.
    #[arg(long, default_value_t = 0.01, value_name = "SHARE", help_heading = HEADING)]
    #[arg(requires = "traces", value_parser = share)]
    traces_share: f64,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("a share is from 0 to 1".to_owned()) }
}

/// Sends the remaining traces when it is dropped.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            tracing::warn!(%error, "sending the last traces");
        }
    }
}

impl TraceArguments {
    /// Returns the layer that makes traces of spans, and a value to keep until the process ends; `None` without a
    /// collector. Traces name the service `forebay` and this command.
    ///
    /// # Errors
    /// Usage, for an invalid address.
    pub fn start(&self, command: &'static str) -> Result<Option<(impl Layer<Registry> + use<>, Traces)>, Failure> {
        let Some(url) = &self.traces else { return Ok(None) };
        let parsed = Request::post(url).body(());
        let parsed = parsed.map_err(|error| Failure::usage(format_args!("--traces {url}: {error}")))?;
        let uri = parsed.uri();
        if uri.scheme_str() != Some("http") || uri.port_u16().is_none() {
            return Err(Failure::usage(format_args!("--traces {url}: http://ADDRESS:PORT is needed")));
        }
        let endpoint = if uri.path() == "/" { url.trim_end_matches('/').to_owned() + PATH } else { url.clone() };
        let exporter =
            SpanExporter::builder().with_http().with_http_client(Sender::default()).with_endpoint(endpoint).build();
        let exporter = exporter.map_err(|error| {
            Failure::new(ErrorKind::Invalid, Stage::Start, format_args!("sending traces to {url}: {error}"))
        })?;
        let attributes = [
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("forebay.command", command),
            KeyValue::new("process.pid", i64::from(std::process::id())),
        ];
        let resource = Resource::builder().with_service_name("forebay").with_attributes(attributes).build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("forebay"))
            .with_location(false)
            .with_threads(false)
            .with_filter(Chosen::new(self.traces_share));
        Ok(Some((layer, Traces(provider))))
    }
}

/// Sends exported spans, each time on a connection of its own.
#[derive(Debug, Default)]
struct Sender {
    /// Whether the last time failed, which is logged once.
    has_failed: AtomicBool,
}

#[async_trait]
impl HttpClient for Sender {
    /// Blocks: the exporter calls it on a thread that does nothing else.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = forebay_admin::exchange(request, TIMEOUT).map_err(HttpError::from);
        let sent = sent.and_then(|answer| match answer.status() {
            status if status.is_success() => Ok(answer),
            status => Err(HttpError::from(format!("the collector answers {status}"))),
        });
        match &sent {
            // Relaxed: it guards nothing.
            Err(error) if !self.has_failed.swap(true, Ordering::Relaxed) => tracing::warn!(%error, "sending traces"),
            Err(_) => {}
            Ok(_) => self.has_failed.store(false, Ordering::Relaxed),
        }
        sent
    }
}

/// Chooses what is traced, evenly.
#[derive(Debug)]
struct Chosen {
    /// How many of 2^32 possible traces are chosen.
    share: u64,
    /// How many traces could have begun, times the share.
    sum: AtomicU64,
}

/// A whole trace, in [`Chosen`].
const ONE: u64 = 1 << 32;

impl Chosen {
    fn new(share: f64) -> Self {
        Self { share: (share * ONE as f64) as u64, sum: AtomicU64::new(0) }
    }

    /// Whether the next possible trace is chosen.
    fn next(&self) -> bool {
        // Relaxed: it orders nothing.
        let before = self.sum.fetch_add(self.share, Ordering::Relaxed) % ONE;
        before + self.share >= ONE
    }

    fn is_ours(metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == TARGET
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Filter<S> for Chosen {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        // The current span is one that was chosen.
        Self::is_ours(metadata)
            && (context.lookup_current().is_some() || (*metadata.level() == Level::DEBUG && self.next()))
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::is_ours(metadata) { Interest::sometimes() } else { Interest::never() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_chosen_evenly() {
        for (share, expected) in [(0.0, 0), (0.01, 10), (0.5, 500), (1.0, 1000)] {
            let chosen = Chosen::new(share);
            let count = (0..1000).filter(|_| chosen.next()).count();
            assert!(count.abs_diff(expected) <= 1, "{count} of {share}");
        }
        assert!(super::share("1.5").is_err() && super::share("x").is_err() && super::share("0.25") == Ok(0.25));
    }
}
