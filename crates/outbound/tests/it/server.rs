//! HTTPS servers on this machine, with certificates of their own authority.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// An authority that the client is told to trust.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        // Whoever comes first installs it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("signed");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("written");
        Self { issuer, folder }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A server under `name` that answers each connection with `answer` and tells what it was asked.
    pub(crate) async fn serve(&self, name: &str, answer: Answer) -> Server {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("they fit");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (tell, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, tell) = (acceptor.clone(), answer.clone(), tell.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut request = vec![0; 16 * 1024];
                    let mut read = 0;
                    while !complete(&request[..read]) {
                        match stream.read(&mut request[read..]).await {
                            Ok(0) | Err(_) => return,
                            Ok(bytes) => read += bytes,
                        }
                    }
                    let _ = tell.send(String::from_utf8_lossy(&request[..read]).into_owned());
                    let _ = stream.write_all(&answer.bytes).await;
                    if answer.hangs {
                        std::future::pending::<()>().await;
                    }
                    let _ = stream.shutdown().await;
                });
            }
        });
        Server { address, asked }
    }
}

fn complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().expect("a number"))
}

/// What a server writes once it has read a request.
#[derive(Clone)]
pub(crate) struct Answer {
    bytes: Arc<Vec<u8>>,
    hangs: bool,
}

impl Answer {
    pub(crate) fn ok(body: &[u8]) -> Self {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        Self::raw([head.as_bytes(), body].concat())
    }

    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: Arc::new(bytes.into()), hangs: false }
    }

    /// Writes this much and then nothing more.
    pub(crate) fn hanging(bytes: &[u8]) -> Self {
        Self { bytes: Arc::new(bytes.to_vec()), hangs: true }
    }
}

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The requests that it read.
    pub(crate) asked: mpsc::UnboundedReceiver<String>,
}
