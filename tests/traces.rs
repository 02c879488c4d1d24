//! One trace from the edge to the consumer, seen by a real OTLP receiver.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::harness::{Consumer, Gateway, Kind, Setup, Signed, Site, canaries, eventually, stripe_event};

/// The spans that were exported, which are searched for canaries at the end.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Span>>>);

impl Spans {
    fn known(&self) -> MutexGuard<'_, Vec<Span>> {
        self.0.lock().expect("not poisoned")
    }

    /// Whatever a span holds: names, attributes, events, links, state.
    fn check_leaks(&self) {
        for span in &*self.known() {
            canaries::assert_none("a span", format!("{span:?}"));
        }
    }
}

struct Collector(Spans);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let spans = request.into_inner().resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        self.0.known().extend(spans.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector() -> (String, Spans) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let spans = Spans::default();
    let service = TraceServiceServer::new(Collector(spans.clone()));
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (format!("http://{address}"), spans)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_edge_over_the_commit_to_the_consumer() {
    let (endpoint, spans) = collector().await;
    let site = Site::new(Kind::Sqlite);
    let mut gateway = Gateway::new(&site).set("TELEMETRY__OTLP_ENDPOINT", endpoint);
    gateway.launch().await;
    let setup = Setup::new(&gateway).await;
    let consumer = Consumer::start(&gateway).await;
    let answer = setup.provider(&gateway).send(&stripe_event("evt_traced", "sub_1", 1)).await;
    assert!(answer.is_success(), "{}", answer.text);
    consumer.has_acked(1, Duration::from_secs(30)).await;
    let trace =
        eventually("the edge's and the delivery's span of one trace", Duration::from_secs(30), async || {
            let spans = spans.known();
            let trace = &spans.iter().find(|span| span.name == "deliver")?.trace_id;
            let is_edge = |span: &Span| span.name == "edge" && span.trace_id == *trace;
            spans.iter().any(is_edge).then(|| trace.clone())
        })
        .await;
    let deliver = spans.known().iter().find(|span| span.name == "deliver").expect("found before").clone();
    assert!(!deliver.parent_span_id.is_empty(), "the delivery continues the span that accepted the event");
    assert_eq!(trace.len(), 16);
    let refused = setup.provider(&gateway).post(&Signed { headers: Vec::new(), body: Vec::new() }).await;
    assert_eq!(refused.status, 401);
    gateway.terminate();
    assert!(gateway.ended(Duration::from_secs(30)).await.success());
    assert!(spans.known().len() > 2, "the end sends what was still buffered");
    spans.check_leaks();
}
