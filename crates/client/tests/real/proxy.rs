//! A way to a gateway that can be cut, and led to another one.

use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Copies bytes between clients and the gateway that it leads to.
pub(crate) struct Proxy {
    /// `http://127.0.0.1:…`.
    pub(crate) endpoint: String,
    target: Arc<Mutex<Option<String>>>,
    connections: Arc<Mutex<JoinSet<()>>>,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Leads to a gateway.
    pub(crate) async fn start(gateway: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let target = Arc::new(Mutex::new(None));
        let connections = Arc::new(Mutex::new(JoinSet::new()));
        let (leads_to, all) = (Arc::clone(&target), Arc::clone(&connections));
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.expect("a connection");
                let target: Option<String> = leads_to.lock().expect("not poisoned").clone();
                all.lock().expect("not poisoned").spawn(async move {
                    let Some(target) = target else { return };
                    // A gateway that is gone takes none: then the client's connection ends too.
                    if let Ok(mut gateway) = TcpStream::connect(target).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut gateway).await;
                    }
                });
            }
        }));
        let proxy = Self { endpoint, target, connections, _task: task };
        proxy.lead_to(target_of(gateway));
        proxy
    }

    /// New connections go there from now on.
    pub(crate) fn lead_to(&self, target: Option<String>) {
        *self.target.lock().expect("not poisoned") = target;
    }

    /// Cuts every connection without a word.
    pub(crate) fn cut(&self) {
        self.connections.lock().expect("not poisoned").abort_all();
    }
}

/// Host and port of an endpoint.
pub(crate) fn target_of(endpoint: &str) -> Option<String> {
    endpoint.strip_prefix("http://").map(str::to_owned)
}
