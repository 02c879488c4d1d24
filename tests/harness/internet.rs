//! The part of the internet that a gateway reaches: a CONNECT proxy behind which every host is one HTTPS server, whose pages a
//! test writes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Once};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_util::task::AbortOnDropHandle;

/// A proxy and what is behind it.
pub(crate) struct Internet {
    /// `http://…`, for `outbound.proxy`.
    pub(crate) proxy_url: String,
    /// Its authority, PEM, for a file that `outbound.ca_file` names.
    pub(crate) authority: String,
    shared: Arc<Shared>,
    _accepting: AbortOnDropHandle<()>,
}

struct Shared {
    acceptor: TlsAcceptor,
    /// By URL. Every other one is 404.
    pages: Mutex<HashMap<String, String>>,
    asked: Mutex<Vec<String>>,
}

impl Internet {
    /// With servers of these names.
    pub(crate) async fn start(hosts: &[&str]) -> Self {
        static TLS: Once = Once::new();
        TLS.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("signed");
        let names = hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>();
        let key = KeyPair::generate().expect("a key");
        let certificate =
            CertificateParams::new(names).expect("names").signed_by(&key, &authority).expect("signed");
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            )
            .expect("they fit");
        let shared = Arc::new(Shared {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            pages: Mutex::default(),
            asked: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy_url = format!("http://{}", listener.local_addr().expect("bound"));
        let serving = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connect(stream, Arc::clone(&serving)));
            }
        });
        Self { proxy_url, authority: authority.pem(), shared, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// Writes a page.
    pub(crate) fn write(&self, url: &str, page: &str) {
        self.shared.pages.lock().expect("no panic").insert(url.to_owned(), page.to_owned());
    }

    /// How often a URL was asked for.
    pub(crate) fn asked(&self, url: &str) -> usize {
        self.shared.asked.lock().expect("no panic").iter().filter(|asked| *asked == url).count()
    }
}

/// One connection: CONNECT, then TLS, then one request.
async fn connect(mut stream: TcpStream, shared: Arc<Shared>) -> Option<()> {
    let mut plain = BufReader::new(&mut stream);
    let line = head(&mut plain).await?;
    let host = line.strip_prefix("CONNECT ")?.split(':').next()?.to_owned();
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
    let mut stream = BufReader::new(shared.acceptor.accept(stream).await.ok()?);
    let line = head(&mut stream).await?;
    let url = format!("https://{host}{}", line.strip_prefix("GET ")?.split(' ').next()?);
    shared.asked.lock().expect("no panic").push(url.clone());
    let page = shared.pages.lock().expect("no panic").get(&url).cloned();
    let (status, page) = page.map_or(("404 Not Found", String::new()), |page| ("200 OK", page));
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{page}", page.len());
    stream.write_all(answer.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

/// The first line of a head, which is read to its end.
async fn head(stream: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Option<String> {
    let mut first = String::new();
    stream.read_line(&mut first).await.ok()?;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
    }
    Some(first)
}
