//! Logs, traces and metrics: set up once, flushed at the end.

mod panics;
mod trace_context;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogFormat, Telemetry};

pub(crate) use trace_context::{adopt_trace_parent, current_trace_parent};

/// Keeps telemetry running; flushes what is buffered when it is shut down.
pub(crate) struct Guard {
    traces: Option<SdkTracerProvider>,
}

impl Guard {
    /// Sends the spans that are still buffered. Blocks for at most a few seconds.
    pub(crate) fn shutdown(self) {
        if let Some(Err(error)) = self.traces.map(|provider| provider.shutdown()) {
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }
}

/// Sets up logs and traces for this process. Must run inside the Tokio runtime when traces are on.
pub(crate) fn start(settings: &Telemetry, instance: &str) -> anyhow::Result<Guard> {
    let filter = filter(&settings.log_level)?;
    let lines = match settings.log_format {
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .with_writer(std::io::stderr)
            .boxed(),
        LogFormat::Text => {
            let person = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let layer = tracing_subscriber::fmt::layer().with_target(false).with_ansi(person);
            layer.with_writer(std::io::stderr).boxed()
        }
    };
    let traces = settings
        .otlp_endpoint
        .as_deref()
        .map(|endpoint| exporter(endpoint, settings, instance))
        .transpose()?;
    let spans = traces.as_ref().map(|provider| {
        let only_ours = Targets::new().with_target("portero", tracing::Level::INFO);
        tracing_opentelemetry::layer().with_tracer(provider.tracer("portero")).with_filter(only_ours)
    });
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(spans).init();
    panics::log_them();
    Ok(Guard { traces })
}

/// Which lines are written. The database driver's are left out: they carry its own words, and the stores say themselves what
/// fails, to whom it matters and what to do.
fn filter(log_level: &str) -> anyhow::Result<Targets> {
    let filter: Targets = log_level.parse()?;
    // A log line of the exporter about its own failure must not become a span to export, and a stranger who breaks the protocol
    // must not write warnings into the log.
    let filter = filter.with_target("h2", tracing::Level::ERROR).with_target("hyper", tracing::Level::ERROR);
    Ok(filter.with_target("sqlx", tracing::level_filters::LevelFilter::OFF))
}

fn exporter(endpoint: &str, settings: &Telemetry, instance: &str) -> anyhow::Result<SdkTracerProvider> {
    let exporter =
        opentelemetry_otlp::SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
    let resource = Resource::builder()
        .with_service_name("portero")
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(opentelemetry::KeyValue::new("service.instance.id", instance.to_owned()))
        .build();
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.trace_ratio)));
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .with_sampler(sampler)
        .build())
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn no_word_of_the_database_driver_is_written_unless_somebody_asks_for_it_by_name() {
        for target in ["sqlx::pool::acquire", "sqlx_core::pool::inner", "sqlx::query"] {
            assert!(!filter("trace").expect("a level").would_enable(target, &Level::ERROR), "{target}");
        }
        let asked = filter("info,sqlx_core=warn").expect("directives");
        assert!(asked.would_enable("sqlx_core::pool::inner", &Level::ERROR));
        assert!(filter("info").expect("a level").would_enable("portero_store_postgres", &Level::INFO));
    }

    #[test]
    fn strangers_who_break_the_protocol_write_no_warnings() {
        let filter = filter("debug").expect("a level");
        assert!(!filter.would_enable("h2::proto::streams::recv", &Level::WARN));
        assert!(filter.would_enable("h2::proto::streams::recv", &Level::ERROR));
    }
}
