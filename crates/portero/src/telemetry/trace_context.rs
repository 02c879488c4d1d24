//! The W3C trace context as text: stored with an event, and taken up again where it is delivered.

use std::collections::HashMap;

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

const TRACE_PARENT: &str = "traceparent";

/// `traceparent` of the current span (W3C Trace Context, section 3.2); empty when traces are off.
pub(crate) fn current_trace_parent() -> String {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut carrier);
    carrier.remove(TRACE_PARENT).unwrap_or_default()
}

/// Makes `span` a child of the span that `trace_parent` names; does nothing when it is empty or malformed.
pub(crate) fn adopt_trace_parent(span: &Span, trace_parent: &str) {
    if trace_parent.is_empty() {
        return;
    }
    let carrier = HashMap::from([(TRACE_PARENT.to_owned(), trace_parent.to_owned())]);
    // A span that is already closed or filtered out takes no parent; nothing is lost by that.
    let _ = span.set_parent(TraceContextPropagator::new().extract(&carrier));
}
