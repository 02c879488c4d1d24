//! One trace from the edge to the consumer, seen by a real OTLP receiver.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::harness::{Consumer, Gateway, Kind, Setup, Site, eventually, stripe_event};

/// Name, trace id and parent of each span that was exported.
type Spans = Arc<Mutex<Vec<(String, Vec<u8>, Vec<u8>)>>>;

struct Collector(Spans);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let spans = request.into_inner().resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        let mut known = self.0.lock().expect("not poisoned");
        for span in spans.flat_map(|scope| scope.spans) {
            known.push((span.name, span.trace_id, span.parent_span_id));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector() -> (String, Spans) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let spans = Spans::default();
    let service = TraceServiceServer::new(Collector(Arc::clone(&spans)));
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
            let spans = spans.lock().expect("not poisoned");
            let (_, trace, _) = spans.iter().find(|(name, ..)| name == "deliver")?;
            spans.iter().any(|(name, id, _)| name == "edge" && id == trace).then(|| trace.clone())
        })
        .await;
    let spans = spans.lock().expect("not poisoned");
    let (_, _, parent) = spans.iter().find(|(name, ..)| name == "deliver").expect("found before");
    assert!(!parent.is_empty(), "the delivery continues the span that accepted the event");
    assert_eq!(trace.len(), 16);
}
