//! A gateway that a test plays by hand, on a real socket, behind a proxy whose connections can be cut.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use portero_client::v1;
use portero_proto::v1::subscriber_service_server::{SubscriberService, SubscriberServiceServer};
use portero_proto::v1::{subscribe_request, subscribe_response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming};

/// Longer than anything in a test should take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The gateway; dropped, it is gone.
pub(crate) struct Gateway {
    pub(crate) endpoint: String,
    streams: mpsc::UnboundedReceiver<Stream>,
    settled: Arc<Mutex<Vec<v1::SettleRequest>>>,
    connections: Arc<Mutex<JoinSet<()>>>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// One client's stream.
pub(crate) struct Stream {
    pub(crate) authorization: Option<String>,
    from_client: Streaming<v1::SubscribeRequest>,
    to_client: mpsc::UnboundedSender<Result<v1::SubscribeResponse, Status>>,
}

struct Service {
    streams: mpsc::UnboundedSender<Stream>,
    settled: Arc<Mutex<Vec<v1::SettleRequest>>>,
}

#[tonic::async_trait]
impl SubscriberService for Service {
    type SubscribeStream = BoxStream<'static, Result<v1::SubscribeResponse, Status>>;

    async fn subscribe(
        &self,
        request: Request<Streaming<v1::SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let authorization = request.metadata().get("authorization");
        let authorization = authorization.map(|value| value.to_str().expect("ASCII").to_owned());
        let (to_client, frames) = mpsc::unbounded_channel();
        let stream = Stream { authorization, from_client: request.into_inner(), to_client };
        self.streams.send(stream).map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(UnboundedReceiverStream::new(frames).boxed()))
    }

    async fn settle(
        &self,
        request: Request<v1::SettleRequest>,
    ) -> Result<Response<v1::SettleResponse>, Status> {
        let request = request.into_inner();
        let results = results(&request.items, v1::SettlementStatus::Durable);
        self.settled.lock().expect("not poisoned").push(request);
        Ok(Response::new(v1::SettleResponse { results }))
    }
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        let (streams, receiver) = mpsc::unbounded_channel();
        let settled = Arc::new(Mutex::new(Vec::new()));
        let service = Service { streams, settled: Arc::clone(&settled) };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let inner = listener.local_addr().expect("an address");
        let server = tonic::transport::Server::builder()
            .add_service(SubscriberServiceServer::new(service))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = AbortOnDropHandle::new(tokio::spawn(async move {
            server.await.expect("the server runs");
        }));

        let proxy = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", proxy.local_addr().expect("an address"));
        let connections = Arc::new(Mutex::new(JoinSet::new()));
        let all = Arc::clone(&connections);
        let proxy = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let (mut client, _) = proxy.accept().await.expect("a connection");
                all.lock().expect("not poisoned").spawn(async move {
                    let mut server = TcpStream::connect(inner).await.expect("the server listens");
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        }));
        Self { endpoint, streams: receiver, settled, connections, _tasks: [server, proxy] }
    }

    /// Cuts every connection without a word.
    pub(crate) fn cut(&self) {
        self.connections.lock().expect("not poisoned").abort_all();
    }

    /// The next stream, after its Hello and Welcome.
    pub(crate) async fn stream(&mut self) -> (Stream, v1::Hello) {
        self.stream_after(|_| v1::Welcome::default()).await
    }

    /// The next stream, after its Hello and a Welcome with which all unsettled work goes on.
    pub(crate) async fn resuming_stream(&mut self) -> (Stream, v1::Hello) {
        let resume = |hello: &v1::Hello| hello.unsettled_tokens.clone();
        self.stream_after(|hello| v1::Welcome { resumed_tokens: resume(hello), ..v1::Welcome::default() })
            .await
    }

    async fn stream_after(&mut self, welcome: impl FnOnce(&v1::Hello) -> v1::Welcome) -> (Stream, v1::Hello) {
        let mut stream = self.raw_stream().await;
        let hello = match stream.frame().await {
            Some(subscribe_request::Frame::Hello(hello)) => hello,
            other => panic!("expected Hello, got {other:?}"),
        };
        stream.send(subscribe_response::Frame::Welcome(welcome(&hello)));
        (stream, hello)
    }

    /// The next stream as it comes.
    pub(crate) async fn raw_stream(&mut self) -> Stream {
        patient(self.streams.recv()).await.expect("a client")
    }

    /// What unary calls settled so far: receipt-independent tokens and outcomes.
    pub(crate) fn settled(&self) -> Vec<(Bytes, v1::Outcome)> {
        let requests = self.settled.lock().expect("not poisoned");
        requests
            .iter()
            .flat_map(|request| &request.items)
            .map(|item| (item.token.clone(), item.outcome()))
            .collect()
    }
}

impl Stream {
    pub(crate) fn send(&self, frame: subscribe_response::Frame) {
        let _ = self.to_client.send(Ok(v1::SubscribeResponse { frame: Some(frame) }));
    }

    pub(crate) fn fail(self, status: Status) {
        let _ = self.to_client.send(Err(status));
    }

    /// Delivers events, all in one frame: token, receipt number and entity of each.
    pub(crate) fn deliver(&self, events: &[(&str, u64, &str)]) {
        let deliveries =
            events.iter().map(|(token, receipt, entity)| delivery(token, *receipt, entity)).collect();
        self.send(subscribe_response::Frame::Deliver(v1::Deliver { deliveries }));
    }

    /// The next frame but heartbeats; `None` when the client ended its half or is gone.
    pub(crate) async fn frame(&mut self) -> Option<subscribe_request::Frame> {
        loop {
            let frame = patient(self.from_client.next()).await?.ok()?.frame.expect("a frame");
            if !matches!(frame, subscribe_request::Frame::Heartbeat(_)) {
                return Some(frame);
            }
        }
    }

    /// The next Settle frame, answered as durable.
    pub(crate) async fn settle(&mut self) -> v1::Settle {
        match self.frame().await {
            Some(subscribe_request::Frame::Settle(settle)) => {
                let results = results(&settle.items, v1::SettlementStatus::Durable);
                let frame_no = settle.frame_no;
                self.send(subscribe_response::Frame::Settled(v1::Settled { frame_no, results }));
                settle
            }
            other => panic!("expected Settle, got {other:?}"),
        }
    }

    /// Settle frames, answered as durable, until they brought so many outcomes.
    pub(crate) async fn outcomes(&mut self, count: usize) -> Vec<(Bytes, v1::Outcome)> {
        let mut outcomes = Vec::new();
        while outcomes.len() < count {
            let settle = self.settle().await;
            outcomes.extend(settle.items.iter().map(|item| (item.token.clone(), item.outcome())));
        }
        assert_eq!(outcomes.len(), count);
        outcomes
    }
}

fn delivery(token: &str, receipt: u64, entity: &str) -> v1::Delivery {
    let event = v1::Event {
        receipt_id: format!("rcpt_{receipt}"),
        tenant: "acme".to_owned(),
        ordering_key: entity.to_owned(),
        body: Bytes::from_static(b"{}"),
        ..v1::Event::default()
    };
    let token = Bytes::from(token.to_owned());
    v1::Delivery { token, attempt: 1, position: receipt, event: Some(event), ..v1::Delivery::default() }
}

fn results(items: &[v1::Settlement], status: v1::SettlementStatus) -> Vec<v1::SettlementResult> {
    items
        .iter()
        .map(|item| v1::SettlementResult {
            token: item.token.clone(),
            status: status.into(),
            detail: String::new(),
        })
        .collect()
}

/// Waits, but not for ever.
pub(crate) async fn patient<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it takes too long")
}
