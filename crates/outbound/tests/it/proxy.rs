//! A CONNECT proxy that leads every name to one server.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A running proxy.
pub(crate) struct Proxy {
    pub(crate) url: String,
    /// What it was asked to connect to.
    pub(crate) asked: mpsc::UnboundedReceiver<String>,
}

/// Starts one that leads to `server`, or refuses when there is none.
pub(crate) async fn start(server: Option<SocketAddr>) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (tell, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connect(stream, server, tell.clone()));
        }
    });
    Proxy { url, asked }
}

async fn connect(stream: TcpStream, server: Option<SocketAddr>, tell: mpsc::UnboundedSender<String>) {
    let mut client = BufReader::new(stream);
    let mut line = String::new();
    let _ = client.read_line(&mut line).await;
    let _ = tell.send(line.split(' ').nth(1).unwrap_or_default().to_owned());
    while line != "\r\n" {
        line.clear();
        if client.read_line(&mut line).await.is_ok_and(|read| read == 0) {
            return;
        }
    }
    let Some(server) = server else {
        let _ = client.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n").await;
        return;
    };
    let mut upstream = TcpStream::connect(server).await.expect("the server listens");
    let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
    let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
}
