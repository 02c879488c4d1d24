//! `[telemetry]`: logs and traces.

use super::Reader;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// `[telemetry]`.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    pub(crate) log_format: LogFormat,
    /// A level, or directives such as `info,portero_ingress=debug`.
    pub(crate) log_level: String,
    /// OTLP over gRPC, such as `http://collector:4317`; traces are off without it.
    pub(crate) otlp_endpoint: Option<String>,
    /// Share of traces kept, 0 to 1, when the caller has not decided.
    pub(crate) trace_ratio: f64,
}

impl Telemetry {
    pub(super) fn read(section: &mut Reader) -> Self {
        let format = section.text("log_format", "json");
        let log_format = match format.as_str() {
            "json" => LogFormat::Json,
            "text" => LogFormat::Text,
            _ => {
                section.problem("log_format", "must be \"json\" or \"text\"");
                LogFormat::Json
            }
        };
        let log_level = section.text("log_level", "info");
        if log_level.parse::<tracing_subscriber::filter::Targets>().is_err() {
            section
                .problem("log_level", "must be a level or directives such as \"info,portero_ingress=debug\"");
        }
        let otlp_endpoint = section.optional::<String>("otlp_endpoint").filter(|url| !url.is_empty());
        if otlp_endpoint.as_ref().is_some_and(|url| !is_collector(url)) {
            section.problem(
                "otlp_endpoint",
                "must be a URL such as \"http://collector:4317\", without user name and password",
            );
        }
        Self {
            log_format,
            log_level,
            otlp_endpoint,
            trace_ratio: section.within("trace_ratio", 1.0, 0.0, 1.0),
        }
    }
}

fn is_collector(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| {
        let is_bare = url.username().is_empty() && url.password().is_none();
        matches!(url.scheme(), "http" | "https") && url.has_host() && is_bare
    })
}
