//! An identity provider: keys, tokens of any kind, and the address where the keys are published.

use std::sync::{Arc, Mutex, Once};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ED25519};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_util::task::AbortOnDropHandle;

use super::{canaries, now};

/// What comes before the 32 bytes of an Ed25519 key in PKCS#8, version 1 (RFC 8410 section 7).
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A key of an issuer and what it signs with.
pub(crate) struct IssuerKey {
    kid: String,
    algorithm: Algorithm,
    key: EncodingKey,
}

impl IssuerKey {
    /// A fresh Ed25519 key.
    pub(crate) fn ed25519(kid: &str) -> Self {
        install_tls();
        let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
        // Version 1 of the format, without the public part: the library takes no other.
        let seed = &pair.serialized_der()[PKCS8_ED25519.len()..][..32];
        let key = EncodingKey::from_ed_der(&[&PKCS8_ED25519[..], seed].concat());
        Self { kid: kid.to_owned(), algorithm: Algorithm::EdDSA, key }
    }

    /// The RSA key of the tests; they all have the same, since making one takes long.
    pub(crate) fn rsa(kid: &str) -> Self {
        let pem = include_bytes!("../../crates/auth/tests/data/rsa.pem");
        let key = EncodingKey::from_rsa_pem(pem).expect("a key");
        Self { kid: kid.to_owned(), algorithm: Algorithm::RS256, key }
    }

    /// Signs claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({ "alg": self.algorithm, "typ": "JWT", "kid": self.kid });
        sign_as(&header, claims, self.algorithm, &self.key)
    }

    /// Signs claims under a header of one's own.
    pub(crate) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        sign_as(header, claims, self.algorithm, &self.key)
    }

    /// Its public part as an entry of a key set.
    pub(crate) fn public(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).expect("a public key");
        jwk.common.key_id = Some(self.kid.clone());
        serde_json::to_value(jwk).expect("serialises")
    }
}

/// Signs with a shared secret: what nobody may do.
pub(crate) fn sign_with_secret(kid: &str, claims: &Value, secret: &[u8]) -> String {
    let header = json!({ "alg": "HS256", "typ": "JWT", "kid": kid });
    sign_as(&header, claims, Algorithm::HS256, &EncodingKey::from_secret(secret).expect("a secret"))
}

/// Signs nothing: header and claims with an empty signature.
pub(crate) fn unsigned(claims: &Value) -> String {
    format!("{}.{}.", encode(&json!({ "alg": "none", "typ": "JWT" })), encode(claims))
}

fn sign_as(header: &Value, claims: &Value, algorithm: Algorithm, key: &EncodingKey) -> String {
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), key, algorithm).expect("signed");
    let token = format!("{signed}.{signature}");
    canaries::plant_token(&token);
    token
}

fn encode(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

/// A key set document.
pub(crate) fn key_set(keys: &[&IssuerKey]) -> String {
    json!({ "keys": keys.iter().map(|key| key.public()).collect::<Vec<_>>() }).to_string()
}

/// Claims that are good for ten minutes.
pub(crate) fn claims(issuer: &str, audience: &str, subject: &str) -> Value {
    let now = now().as_secs();
    json!({ "iss": issuer, "aud": audience, "sub": subject, "iat": now, "nbf": now, "exp": now + 600 })
}

/// Where keys are published.
pub(crate) struct KeyServer {
    /// `http://127.0.0.1:…/keys`, or `https://localhost:…/keys`.
    pub(crate) url: String,
    /// The authority of its certificate, PEM; empty without TLS.
    pub(crate) authority: String,
    shared: Arc<Shared>,
    _accepting: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// What it answers; `None` is a failure.
    page: Mutex<Option<String>>,
    /// Whom it answers; empty means everybody.
    bearer: Mutex<String>,
}

impl KeyServer {
    /// In plain HTTP, publishing nothing yet.
    pub(crate) async fn plain() -> Self {
        Self::start(None, String::new()).await
    }

    /// With a certificate of an authority of its own.
    pub(crate) async fn tls() -> Self {
        install_tls();
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed");
        let key = KeyPair::generate().expect("a key");
        let names = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = names.signed_by(&key, &authority).expect("signed");
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            )
            .expect("they fit");
        Self::start(Some(TlsAcceptor::from(Arc::new(config))), authority.pem()).await
    }

    async fn start(tls: Option<TlsAcceptor>, authority: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let host = if tls.is_some() { "https://localhost" } else { "http://127.0.0.1" };
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, tls.clone(), Arc::clone(&serving)));
            }
        });
        let accepting = AbortOnDropHandle::new(accepting);
        Self { url: format!("{host}:{port}/keys"), authority, shared, _accepting: accepting }
    }

    /// Publishes these keys and no others.
    pub(crate) fn publish(&self, keys: &[&IssuerKey]) {
        *self.shared.page.lock().expect("no panic") = Some(key_set(keys));
    }

    /// Answers with a failure from now on.
    pub(crate) fn fail(&self) {
        *self.shared.page.lock().expect("no panic") = None;
    }

    /// Answers only who sends this token.
    pub(crate) fn answer_only(&self, bearer: &str) {
        canaries::plant_token(bearer);
        bearer.clone_into(&mut self.shared.bearer.lock().expect("no panic"));
    }
}

async fn serve(stream: TcpStream, tls: Option<TlsAcceptor>, shared: Arc<Shared>) -> Option<()> {
    match tls {
        Some(tls) => answer(tls.accept(stream).await.ok()?, &shared).await,
        None => answer(stream, &shared).await,
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Shared) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let mut authorization = String::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                value.clone_into(&mut authorization);
            }
            Some(_) => {}
            None if line == "\r\n" => break,
            None => {}
        }
    }
    let wanted = shared.bearer.lock().expect("no panic").clone();
    let is_allowed = wanted.is_empty() || authorization == format!("Bearer {wanted}");
    let page = shared.page.lock().expect("no panic").clone();
    let (status, page) = match page {
        _ if !is_allowed => ("401 Unauthorized", String::new()),
        None => ("503 Service Unavailable", String::new()),
        Some(page) => ("200 OK", page),
    };
    let text =
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}", page.len());
    stream.write_all(text.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

fn install_tls() {
    static TLS: Once = Once::new();
    TLS.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
}
