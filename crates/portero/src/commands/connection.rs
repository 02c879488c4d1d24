//! The way to a gateway's gRPC port: endpoint, token, and its errors in words for people.

use std::borrow::Cow;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portero_client::{Admin, Client, ClientCertificate, ClientConfig, Error, Tls, TlsFailure, Token};
use tonic::{Code, Response, Status};

use super::exit::{Failure, Kind};
use super::present::clean;
use crate::cli::ConnectArgs;
use crate::local_issuer;

/// How long an admin call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// What a token is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Managing.
    Admin,
    /// Receiving events.
    Consume,
}

impl Purpose {
    /// The token that `portero dev` leaves for it.
    fn dev_token(self) -> PathBuf {
        Path::new(local_issuer::DEV_FOLDER).join(match self {
            Self::Admin => local_issuer::ADMIN_TOKEN_FILE,
            Self::Consume => local_issuer::CONSUMER_TOKEN_FILE,
        })
    }
}

/// A client for that purpose. Connects with its first call.
pub(crate) async fn client(args: &ConnectArgs, purpose: Purpose) -> anyhow::Result<Client> {
    let mut config = ClientConfig::new(&args.endpoint);
    config.token = token(args, &purpose.dev_token())?;
    config.tls = tls(args);
    let origin = origin(&args.endpoint);
    Ok(Client::connect(config).await.map_err(|error| of_client(&error, &origin))?)
}

fn tls(args: &ConnectArgs) -> Tls {
    let own = args.tls.own();
    Tls {
        ca_file: args.tls.ca_file.clone(),
        client_certificate: own.map(|(cert_file, key_file)| ClientCertificate { cert_file, key_file }),
        server_name: args.server_name.clone(),
    }
}

fn token(args: &ConnectArgs, dev_token: &Path) -> Result<Token, Failure> {
    match (&args.token, &args.token_file) {
        (Some(_), Some(_)) => Err(Failure::usage(
            "give one of --token (or PORTERO_TOKEN) and --token-file (or PORTERO_TOKEN_FILE), not both",
        )),
        (Some(token), None) => Ok(Token::fixed(token.expose_secret().as_str())),
        (None, Some(file)) => {
            let why = match std::fs::metadata(file) {
                Ok(found) if !found.is_file() => "it is not a regular file",
                Ok(found) if found.len() == 0 => "the file is empty",
                Ok(_) => return Ok(Token::file(file)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => "no such file",
                Err(_) => "it cannot be looked at",
            };
            Err(Failure::usage(format!("there is no token in {}: {why}", file.display())))
        }
        (None, None) if dev_token.is_file() => Ok(Token::file(dev_token)),
        (None, None) => Err(Failure::new(
            Kind::NoPermission,
            format!(
                "no token: give --token-file FILE (or PORTERO_TOKEN_FILE), mint one with `portero token mint`, or run this in \
                 the folder where `portero dev` runs, which leaves one in {}",
                dev_token.display()
            ),
        )),
    }
}

/// Scheme, host and port of a URL: what may be shown of it.
pub(crate) fn origin(url: &str) -> String {
    let parsed = url::Url::parse(url).ok();
    let shown = parsed.as_ref().and_then(|url| {
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Some(format!("{}://{}{port}", url.scheme(), url.host_str()?))
    });
    shown.unwrap_or_else(|| "the given address".to_owned())
}

/// The admin API of one gateway.
pub(crate) struct AdminApi {
    admin: Admin,
    origin: String,
}

impl AdminApi {
    /// Finds the token; connects with the first call.
    pub(crate) async fn open(args: &ConnectArgs) -> anyhow::Result<Self> {
        let client = client(args, Purpose::Admin).await?;
        Ok(Self { admin: client.admin(), origin: origin(&args.endpoint) })
    }

    /// The client whose calls [`Self::ask`] takes.
    pub(crate) fn calls(&self) -> Admin {
        self.admin.clone()
    }

    /// Waits for the answer to a call, for at most half a minute.
    pub(crate) async fn ask<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(of_status(&status, &self.origin)),
            Err(_) => Err(of_code(Code::DeadlineExceeded, "", false, &self.origin)),
        }
    }
}

/// A gateway's refusal in words.
pub(crate) fn of_status(status: &Status, origin: &str) -> Failure {
    if let Some(failure) = TlsFailure::of(status) {
        return of_tls(failure, origin);
    }
    // A status that our side of the connection made has a cause below it, and that one's text is not for people.
    let is_ours = std::error::Error::source(status).is_some();
    of_code(status.code(), status.message(), is_ours, origin)
}

/// An error of the client library in words.
pub(crate) fn of_client(error: &Error, origin: &str) -> Failure {
    match error {
        Error::Config { field: "endpoint", rule } => {
            Failure::usage(format!("--endpoint (or PORTERO_ENDPOINT) must be {rule}"))
        }
        Error::Config { field: "tls.server_name", rule } => {
            Failure::usage(format!("--server-name (or PORTERO_SERVER_NAME) must be {rule}"))
        }
        Error::TlsFile { field, path, reason } => {
            Failure::usage(format!("{}: {} {reason}", flag_of(field), path.display()))
        }
        Error::Tls(failure) => of_tls(*failure, origin),
        Error::Config { field, rule } => Failure::usage(format!("{field} must be {rule}")),
        Error::Token(reason) => Failure::new(Kind::NoPermission, format!("no token to send: {reason}")),
        Error::Connect(_) => of_code(Code::Unavailable, "", true, origin),
        // The library gives these codes to connections that broke; its message says what it knows.
        Error::Status { code: Code::Unknown | Code::Internal | Code::Cancelled, message } => {
            Failure::unavailable(format!("the stream from {origin} ended: {}", clean(message)))
        }
        Error::Status { code, message } => of_code(*code, message, false, origin),
        Error::Silent | Error::Closed => {
            Failure::unavailable(format!("the connection to {origin} broke: {error}"))
        }
        Error::Protocol(_) | _ => Failure::failed(format!("{origin}: {error}")),
    }
}

fn flag_of(field: &str) -> &'static str {
    match field {
        "tls.ca_file" => "--ca-file (or PORTERO_CA_FILE)",
        "tls.client_certificate.cert_file" => "--client-cert (or PORTERO_CLIENT_CERT)",
        _ => "--client-key (or PORTERO_CLIENT_KEY)",
    }
}

/// What is wrong with TLS, and what to do.
pub(crate) fn of_tls(failure: TlsFailure, origin: &str) -> Failure {
    let hint = match failure {
        TlsFailure::UnknownAuthority => "; name that authority by --ca-file (or PORTERO_CA_FILE)",
        TlsFailure::WrongName => {
            "; reach it by a name of the certificate, or give one by --server-name (or PORTERO_SERVER_NAME)"
        }
        TlsFailure::CertificateWanted => {
            "; give one by --client-cert and --client-key (or PORTERO_CLIENT_CERT and PORTERO_CLIENT_KEY)"
        }
        TlsFailure::NotTls => "; a gateway without TLS is reached by http://",
        TlsFailure::Expired
        | TlsFailure::NotYetValid
        | TlsFailure::BadCertificate
        | TlsFailure::CertificateRefused
        | TlsFailure::Handshake
        | _ => "",
    };
    Failure::failed(format!("no TLS with {origin}: {failure}{hint}"))
}

/// The one table from gRPC codes to failures. `is_ours`: the code comes from our side of the connection.
fn of_code(code: Code, message: &str, is_ours: bool, origin: &str) -> Failure {
    let message = if message.is_empty() { Cow::Borrowed("it gave no reason") } else { clean(message) };
    match code {
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled if is_ours => {
            Failure::unavailable(format!(
                "no gateway answers at {origin}: is it running? --endpoint (or PORTERO_ENDPOINT) says where to look"
            ))
        }
        Code::OutOfRange if message.contains("message length too large") => {
            Failure::usage("refused: what was sent is larger than the gateway takes at once")
        }
        Code::InvalidArgument | Code::OutOfRange => Failure::usage(format!("refused: {message}")),
        Code::NotFound => Failure::new(Kind::NotFound, message),
        Code::AlreadyExists | Code::FailedPrecondition | Code::ResourceExhausted => Failure::failed(message),
        Code::Unauthenticated => {
            Failure::new(Kind::NoPermission, format!("the gateway does not accept the token: {message}"))
        }
        Code::PermissionDenied => {
            Failure::new(Kind::NoPermission, format!("the token does not allow this: {message}"))
        }
        Code::Unavailable | Code::Aborted | Code::Cancelled => {
            Failure::unavailable(format!("the gateway at {origin} cannot help now: {message}"))
        }
        Code::DeadlineExceeded => {
            Failure::unavailable(format!("the gateway at {origin} did not answer in time"))
        }
        Code::Unimplemented => Failure::failed(format!(
            "{origin} does not serve this: a gateway needs the role \"admin\" for management and \"stream\" for events"
        )),
        Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => {
            Failure::failed(format!("the gateway at {origin} failed: {message}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use portero_types::Redacted;

    use super::*;

    const ORIGIN: &str = "http://127.0.0.1:50051";

    fn args(token: Option<&str>, token_file: Option<&Path>) -> ConnectArgs {
        ConnectArgs {
            endpoint: ORIGIN.to_owned(),
            token: token.map(|token| Redacted::new(token.to_owned())),
            token_file: token_file.map(Path::to_owned),
            tls: crate::cli::TlsArgs::default(),
            server_name: None,
        }
    }

    #[test]
    fn each_refusal_has_its_exit_code_and_says_what_is_wrong() {
        let cases = [
            (Code::InvalidArgument, Kind::Usage),
            (Code::NotFound, Kind::NotFound),
            (Code::AlreadyExists, Kind::Failed),
            (Code::FailedPrecondition, Kind::Failed),
            (Code::ResourceExhausted, Kind::Failed),
            (Code::Unauthenticated, Kind::NoPermission),
            (Code::PermissionDenied, Kind::NoPermission),
            (Code::Unavailable, Kind::Unavailable),
            (Code::Internal, Kind::Failed),
        ];
        for (code, kind) in cases {
            let failure = of_status(&Status::new(code, "tenants/acme\u{1b} is odd"), ORIGIN);
            assert_eq!(failure.kind, kind, "{code:?}");
            let text = failure.to_string();
            assert!(text.contains("tenants/acme\\u{1b} is odd"), "{text}");
            assert!(!text.contains("Status") && !text.contains("status:"), "{text}");
        }
        assert_eq!(of_status(&Status::deadline_exceeded(""), ORIGIN).kind, Kind::Unavailable);
    }

    #[test]
    fn a_gateway_that_is_not_there_is_told_by_its_address() {
        let cause = std::io::Error::other("tcp connect error: os error 111");
        let failure = of_status(&Status::from_error(Box::new(cause)), ORIGIN);
        assert_eq!(failure.kind, Kind::Unavailable);
        assert!(failure.to_string().contains(ORIGIN), "{failure}");
        assert!(!failure.to_string().contains("os error"), "{failure}");
    }

    #[test]
    fn only_the_origin_of_a_url_is_shown() {
        assert_eq!(origin("https://user:hush@gateway:1/in/hush?hush"), "https://gateway:1");
        assert_eq!(origin("hush"), "the given address");
    }

    #[tokio::test]
    async fn a_token_is_taken_from_the_flag_the_file_or_the_dev_folder() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "t").expect("written");
        let shown = |args: ConnectArgs, dev: &Path| token(&args, dev).map(|token| format!("{token:?}"));
        let nowhere = Path::new("/nonexistent/token");
        assert_eq!(shown(args(Some("hush"), None), nowhere), Ok("Token(fixed)".to_owned()));
        assert_eq!(shown(args(None, Some(&file)), nowhere), Ok("Token(file)".to_owned()));
        assert_eq!(shown(args(None, None), &file), Ok("Token(file)".to_owned()));
        let both = shown(args(Some("hush"), Some(&file)), nowhere).expect_err("both");
        assert_eq!(both.kind, Kind::Usage);
        assert!(!both.to_string().contains("hush"));
        assert_eq!(shown(args(None, None), nowhere).expect_err("none").kind, Kind::NoPermission);
        assert!(
            shown(args(None, Some(nowhere)), &file).expect_err("gone").to_string().contains("/nonexistent")
        );
    }

    #[test]
    fn a_file_without_a_token_is_not_called_missing() {
        let nowhere = Path::new("/nonexistent/token");
        let why =
            |file: &Path| token(&args(None, Some(file)), nowhere).map(drop).expect_err("none").to_string();
        let empty = tempfile::NamedTempFile::new().expect("file");
        assert!(why(empty.path()).ends_with("the file is empty"));
        assert!(why(Path::new("/dev/null")).ends_with("not a regular file"));
        assert!(why(nowhere).ends_with("no such file"));
    }

    #[tokio::test]
    async fn a_bad_endpoint_names_the_flag() {
        let mut args = args(Some("t"), None);
        args.endpoint = "127.0.0.1:50051".to_owned();
        let error = client(&args, Purpose::Admin).await.expect_err("no scheme").to_string();
        assert!(error.starts_with("--endpoint"), "{error}");
    }
}
