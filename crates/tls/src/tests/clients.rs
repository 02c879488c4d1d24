//! Clients' certificates: authorities that are replaced, lists of what was revoked, and connections that stand meanwhile.

use std::sync::Arc;
use std::time::Duration;

use portero_types::Clock as _;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::authority::{Authority, NOW, Place};
use super::{load, shake};
use crate::{Distrust, LEAVE_WITHIN, LoadError, Refused, ServerTls, TlsFiles, Trust};

const DAY: Duration = Duration::from_secs(86_400);

/// A listener whose clients need a certificate of `clients`, with a list when one is given.
fn files(place: &Place, authority: &Authority, clients: &str, list: Option<&str>) -> TlsFiles {
    TlsFiles {
        client_ca_file: Some(place.put("clients.pem", clients, 0o644)),
        client_crl_file: list.map(|list| place.put("clients.crl", list, 0o644)),
        ..place.write(authority, "gateway.test")
    }
}

/// What becomes of a connection with this certificate.
async fn connect(tls: &ServerTls, authority: &Authority, own: &(String, String)) -> Result<Trust, Refused> {
    let client = authority.client_of(rustls::ALL_VERSIONS, Some(own.clone()));
    shake(tls, client).await.0.map(|secured| secured.trust)
}

/// The reason why a connection's client is no longer trusted, or `None` when it is.
async fn lost(trust: &mut Trust) -> Option<Distrust> {
    timeout(Duration::from_millis(300), trust.lost()).await.ok()
}

#[tokio::test]
async fn a_standing_connection_is_told_when_its_authority_was_replaced_and_those_of_others_go_on() {
    let (authority, old, new) = (Authority::new(), Authority::called("old"), Authority::called("new"));
    let place = Place::new();
    let both = old.pem() + &new.pem();
    let tls = load(&place, files(&place, &authority, &both, None)).expect("loaded");
    let mut of_old = connect(&tls, &authority, &old.issue("consumer")).await.expect("trusted");
    let mut of_new = connect(&tls, &authority, &new.issue("consumer")).await.expect("trusted");

    // Another certificate of ours says nothing about clients.
    place.write(&authority, "gateway.test");
    tls.look(true).await;
    assert_eq!((lost(&mut of_old).await, lost(&mut of_new).await), (None, None));

    place.put("clients.pem", &new.pem(), 0o644);
    tls.look(true).await;
    assert_eq!(lost(&mut of_old).await, Some(Distrust::Authority));
    assert_eq!(lost(&mut of_new).await, None);
    let refused = connect(&tls, &authority, &old.issue("consumer")).await;
    assert!(matches!(refused, Err(Refused::NoClientCertificate | Refused::BadClientCertificate)));

    // Another authority beside it changes nothing for those that stand.
    place.put("clients.pem", &both, 0o644);
    tls.look(true).await;
    assert_eq!(lost(&mut of_new).await, None);
}

/// The handshake may have been done with what was replaced while it was under way.
#[tokio::test]
async fn a_replacement_during_the_handshake_is_not_missed() {
    let (authority, old, new) = (Authority::new(), Authority::called("old"), Authority::called("new"));
    let place = Place::new();
    let tls = load(&place, files(&place, &authority, &old.pem(), None)).expect("loaded");
    let mut trust = connect(&tls, &authority, &old.issue("consumer")).await.expect("trusted");
    place.put("clients.pem", &new.pem(), 0o644);
    tls.look(true).await;
    // Asked for the first time only now.
    assert_eq!(lost(&mut trust).await, Some(Distrust::Authority));
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_and_ends_the_connection_that_it_began() {
    let (authority, clients) = (Authority::new(), Authority::called("clients"));
    let place = Place::new();
    let until = NOW.plus(DAY * 30);
    let list = clients.revoked(&[7], until);
    let tls = load(&place, files(&place, &authority, &clients.pem(), Some(&list))).expect("loaded");
    let (seven, eight) = (clients.issue_numbered("seven", 7), clients.issue_numbered("eight", 8));
    let refused = connect(&tls, &authority, &seven).await;
    assert!(matches!(refused, Err(Refused::RevokedClientCertificate)), "{:?}", refused.err());
    let mut stands = connect(&tls, &authority, &eight).await.expect("trusted");
    let mut other = connect(&tls, &authority, &clients.issue_numbered("nine", 9)).await.expect("trusted");

    place.put("clients.crl", &clients.revoked(&[7, 8], until), 0o644);
    tls.look(true).await;
    assert_eq!(lost(&mut stands).await, Some(Distrust::Revoked));
    assert_eq!(lost(&mut other).await, None);
    let refused = connect(&tls, &authority, &eight).await;
    assert!(matches!(refused, Err(Refused::RevokedClientCertificate)), "{:?}", refused.err());
}

#[tokio::test]
async fn with_lists_whoever_no_list_speaks_for_is_refused() {
    let authority = Authority::new();
    let (listed, unlisted) = (Authority::called("listed"), Authority::called("unlisted"));
    let impostor = Authority::called("listed");
    let place = Place::new();
    let until = NOW.plus(DAY * 30);
    let both = listed.pem() + &unlisted.pem();
    let list = listed.revoked(&[], until);
    let tls = load(&place, files(&place, &authority, &both, Some(&list))).expect("loaded");
    connect(&tls, &authority, &listed.issue("consumer")).await.expect("trusted");
    let own = unlisted.issue("consumer");
    let refused = connect(&tls, &authority, &own).await;
    assert!(matches!(refused, Err(Refused::UnknownClientStatus)), "{:?}", refused.err());
    // A list of the right name that the authority did not sign.
    place.put("clients.crl", &impostor.revoked(&[], until), 0o644);
    tls.look(true).await;
    let refused = connect(&tls, &authority, &listed.issue("consumer")).await;
    assert!(matches!(refused, Err(Refused::UnknownClientStatus)), "{:?}", refused.err());
    // One list for each.
    let lists = listed.revoked(&[], until) + &unlisted.revoked(&[], until);
    place.put("clients.crl", &lists, 0o644);
    tls.look(true).await;
    connect(&tls, &authority, &own).await.expect("trusted");
}

#[tokio::test]
async fn a_list_that_ended_or_cannot_be_read_is_refused_at_the_start_and_replaces_nothing_later() {
    let (authority, clients) = (Authority::new(), Authority::called("clients"));
    let place = Place::new();
    let ended = clients.revoked(&[], NOW.minus(Duration::from_secs(1)));
    let refused = load(&place, files(&place, &authority, &clients.pem(), Some(&ended)));
    let said = refused.expect_err("refused").to_string();
    assert!(said.starts_with("client_crl_file") && said.contains("has ended"), "{said}");
    let list = clients.revoked(&[7], NOW.plus(DAY));
    for (content, wanted) in [
        ("hush", "holds no revocation list in PEM"),
        ("-----BEGIN X509 CRL-----\naHVzaA==\n-----END X509 CRL-----\n", "revocation list that is damaged"),
    ] {
        let refused = load(&place, files(&place, &authority, &clients.pem(), Some(content)));
        let said = refused.expect_err("refused").to_string();
        assert!(said.starts_with("client_crl_file") && said.contains(wanted), "{said}");
        assert!(!said.contains("hush") && !said.contains("aHVzaA"), "{said}");
    }

    let tls = load(&place, files(&place, &authority, &clients.pem(), Some(&list))).expect("loaded");
    let seven = clients.issue_numbered("seven", 7);
    for broken in [ended.as_str(), "hush", &list[..list.len() / 2]] {
        place.put("clients.crl", broken, 0o644);
        tls.look(true).await;
        let refused = connect(&tls, &authority, &seven).await;
        assert!(matches!(refused, Err(Refused::RevokedClientCertificate)), "{:?}", refused.err());
        connect(&tls, &authority, &clients.issue("consumer")).await.expect("trusted");
    }
    place.remove("clients.crl");
    tls.look(true).await;
    assert!(matches!(connect(&tls, &authority, &seven).await, Err(Refused::RevokedClientCertificate)));
}

#[tokio::test]
async fn a_list_that_ends_while_it_is_in_use_lets_nobody_in_until_there_is_a_newer_one() {
    let (authority, clients) = (Authority::new(), Authority::called("clients"));
    let place = Place::new();
    let list = clients.revoked(&[7], NOW.plus(DAY));
    let tls = load(&place, files(&place, &authority, &clients.pem(), Some(&list))).expect("loaded");
    let own = clients.issue("consumer");
    let mut stands = connect(&tls, &authority, &own).await.expect("trusted");
    place.clock.advance(DAY);
    let refused = connect(&tls, &authority, &own).await;
    assert!(matches!(refused, Err(Refused::UnknownClientStatus)), "{:?}", refused.err());
    assert_eq!(lost(&mut stands).await, None, "it was good when it came, and no list says otherwise");

    // The listener's own certificate is renewed all the same.
    let (certificate, key) = authority.issue_until("gateway.test", 4_000_000_000);
    place.put("tls.crt", &certificate, 0o644);
    place.put("tls.key", &key, 0o600);
    tls.look(true).await;
    assert_eq!(tls.not_after().as_secs(), 4_000_000_000);

    place.put("clients.crl", &clients.revoked(&[7], NOW.plus(DAY * 2)), 0o644);
    tls.look(true).await;
    connect(&tls, &authority, &own).await.expect("trusted");
    assert_eq!(lost(&mut stands).await, None);
}

#[tokio::test]
async fn a_connection_is_told_when_its_certificate_has_ended() {
    let (authority, clients) = (Authority::new(), Authority::called("clients"));
    let place = Place::new();
    let tls = load(&place, files(&place, &authority, &clients.pem(), None)).expect("loaded");
    let own = clients.issue_until("consumer", NOW.plus(Duration::from_secs(10)).as_secs());
    let mut trust = connect(&tls, &authority, &own).await.expect("trusted");
    tokio::time::pause();
    assert_eq!(timeout(Duration::from_secs(5), trust.lost()).await.ok(), None);
    // The wall clock may run slower than the steady one.
    assert_eq!(timeout(Duration::from_secs(20), trust.lost()).await.ok(), None);
    place.clock.advance(Duration::from_secs(11));
    assert!(place.clock.now() > NOW);
    let told = timeout(Duration::from_secs(1), trust.lost()).await;
    assert_eq!(told.ok(), Some(Distrust::Expired));
}

#[tokio::test]
async fn what_does_not_leave_in_time_is_dropped() {
    let (authority, clients) = (Authority::new(), Authority::called("clients"));
    let place = Place::new();
    let tls = load(&place, files(&place, &authority, &clients.pem(), None)).expect("loaded");
    let own = clients.issue("consumer");

    let trust = connect(&tls, &authority, &own).await.expect("trusted");
    let leave = CancellationToken::new();
    trust.watch(&leave, async {}).await;
    assert!(!leave.is_cancelled(), "it ended by itself");

    let trust = connect(&tls, &authority, &own).await.expect("trusted");
    place.put("clients.pem", &authority.pem(), 0o644);
    tls.look(true).await;
    tokio::time::pause();
    let (held, began) = (Arc::new(()), tokio::time::Instant::now());
    let holds = Arc::clone(&held);
    let stubborn = async move {
        let _holds = holds;
        std::future::pending::<()>().await;
    };
    trust.watch(&leave, stubborn).await;
    assert!(leave.is_cancelled());
    assert_eq!(Arc::strong_count(&held), 1, "nothing of it goes on");
    assert!(began.elapsed() >= LEAVE_WITHIN);
    Trust::default().watch(&CancellationToken::new(), async {}).await;
}

#[test]
fn a_listener_without_lists_refuses_none_for_want_of_one() {
    let (authority, clients) = (Authority::new(), Authority::called("clients"));
    let place = Place::new();
    let files = files(&place, &authority, &clients.pem(), None);
    let missing = TlsFiles { client_crl_file: Some(place.path("none.crl")), ..files.clone() };
    assert!(load(&place, files).is_ok());
    let refused = load(&place, missing).expect_err("refused");
    assert!(matches!(refused, LoadError::Unreadable { .. }), "{refused}");
}
