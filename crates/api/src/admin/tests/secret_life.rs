//! Secrets from their planning to their end, as administrators meet them.

use std::time::Duration;

use portero_proto::v1;
use portero_proto::v1::retire_secret_request::End;
use portero_store::{ConfigStore as _, Day, SecretUse, SecretUseStore as _};
use portero_types::{SecretId, SourceId, Timestamp};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{NOW, SECRET, Service, bad_field, code, name, preset, tenant};
use crate::time;

const OTHER: &str = "whsec_0a1b2c3d4e5f60718293a4b5c6d7e8f9";
const DAY: Duration = Duration::from_secs(86_400);

async fn rotate(
    service: &Service,
    id: &str,
    value: &str,
    overlap: Option<Duration>,
) -> Result<v1::RotateSecretResponse, Status> {
    let request = v1::RotateSecretRequest {
        parent: name("pay"),
        secret_id: id.to_owned(),
        value: value.to_owned(),
        overlap: overlap.map(time::duration_to_proto),
        ..v1::RotateSecretRequest::default()
    };
    Ok(service.admin.do_rotate_secret(service.acme(request)).await?.into_inner())
}

async fn retire(service: &Service, id: &str, end: Option<End>) -> Result<v1::Secret, Status> {
    let request = v1::RetireSecretRequest { name: full(id), end, reason: String::new() };
    Ok(service.admin.do_retire_secret(service.acme(request)).await?.into_inner())
}

async fn revoke(service: &Service, id: &str, wait: bool) -> Result<v1::RevokeSecretResponse, Status> {
    let request = v1::RevokeSecretRequest { name: full(id), wait, reason: String::new() };
    Ok(service.admin.do_revoke_secret(service.acme(request)).await?.into_inner())
}

async fn get(service: &Service, id: &str) -> v1::Secret {
    let request = service.acme(v1::GetSecretRequest { name: full(id) });
    service.admin.do_get_secret(request).await.expect("there").into_inner()
}

async fn create(service: &Service, id: &str, value: &str) -> Result<v1::Secret, Status> {
    let request = v1::CreateSecretRequest {
        parent: name("pay"),
        secret_id: id.to_owned(),
        value: value.to_owned(),
        not_before: None,
    };
    Ok(service.admin.do_create_secret(service.acme(request)).await?.into_inner())
}

fn full(id: &str) -> String {
    format!("{}/secrets/{id}", name("pay"))
}

fn after(duration: Duration) -> Option<prost_types::Timestamp> {
    Some(time::to_proto(NOW.plus(duration)))
}

/// A source `pay` with the secret `old`.
async fn service() -> Service {
    let service = Service::start().await;
    service.create("pay", preset("stripe")).await.expect("created");
    service.add_secret("pay", "old", SECRET).await;
    service
}

#[tokio::test]
async fn a_rotation_lets_the_old_secret_live_as_long_as_the_provider_may_send_again() {
    let service = service().await;
    let answer = rotate(&service, "new", OTHER, None).await.expect("rotated");
    let new = answer.secret.expect("a secret");
    assert_eq!((new.value.as_str(), new.state()), (OTHER, v1::SecretState::Active));
    let [old] = &answer.retiring[..] else { panic!("{:?}", answer.retiring) };
    assert_eq!((old.state(), old.not_after), (v1::SecretState::Retiring, after(3 * DAY)));
    assert!(old.value.is_empty());
    service.clock.advance(3 * DAY);
    assert_eq!(get(&service, "old").await.state(), v1::SecretState::Retired);
}

#[tokio::test]
async fn a_provider_that_gives_up_soon_leaves_people_a_day_to_change_over() {
    let service = Service::start().await;
    service.create("pay", preset("intercom")).await.expect("created");
    service.add_secret("pay", "old", SECRET).await;
    let answer = rotate(&service, "new", OTHER, None).await.expect("rotated");
    assert_eq!(answer.retiring[0].not_after, after(DAY), "an hour by the preset");
}

#[tokio::test]
async fn a_planned_rotation_counts_its_overlap_from_the_new_ones_beginning() {
    let service = service().await;
    let request = v1::RotateSecretRequest {
        parent: name("pay"),
        secret_id: "new".to_owned(),
        not_before: after(DAY),
        overlap: Some(time::duration_to_proto(DAY)),
        ..v1::RotateSecretRequest::default()
    };
    let answer = service.admin.do_rotate_secret(service.acme(request)).await.expect("rotated").into_inner();
    let new = answer.secret.expect("a secret");
    assert!(new.value.starts_with("whsec_"), "generated");
    assert_eq!((new.state(), answer.retiring[0].not_after), (v1::SecretState::Planned, after(2 * DAY)));
}

#[tokio::test]
async fn the_same_rotation_again_changes_nothing_and_another_value_is_refused() {
    let service = service().await;
    rotate(&service, "new", OTHER, Some(DAY)).await.expect("rotated");
    let revision = service.directory.snapshot().revision();
    service.clock.advance(Duration::from_secs(60));
    let again = rotate(&service, "new", &format!(" {OTHER}\n"), Some(2 * DAY)).await.expect("the same");
    assert_eq!(again.secret.expect("a secret").value, "", "it was shown once");
    assert_eq!(again.retiring[0].not_after, after(DAY), "the first end stays");
    assert_eq!(service.directory.snapshot().revision(), revision);
    let third = "whsec_ffffffffffffffffffffffffffffffe1";
    assert_eq!(code(rotate(&service, "new", third, None).await), Code::AlreadyExists);
    assert_eq!(
        code(rotate(&service, "new", "", None).await),
        Code::AlreadyExists,
        "what was generated is unknown"
    );
}

#[tokio::test]
async fn a_secret_that_is_over_is_not_taken_for_one_that_was_just_added() {
    let service = service().await;
    retire(&service, "old", None).await.expect("retired");
    let refused = create(&service, "old", SECRET).await.expect_err("it has ended");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().ends_with("which has ended: choose another id"), "{refused}");
    revoke(&service, "old", false).await.expect("revoked");
    let refused = rotate(&service, "old", SECRET, None).await.expect_err("it was revoked");
    assert!(refused.message().ends_with("which was revoked: choose another id and value"), "{refused}");
    assert_eq!(code(create(&service, "old", OTHER).await), Code::AlreadyExists);
}

#[tokio::test]
async fn a_new_secret_verifies_at_once_at_gateways_whose_clocks_are_behind() {
    let service = service().await;
    create(&service, "new", OTHER).await.expect("added");
    let source = service.loaded("pay");
    let secrets = &source.verification.as_ref().expect("usable").secrets;
    let behind = NOW.minus(Duration::from_secs(30));
    assert_eq!(secrets.iter().filter(|secret| secret.is_active(behind)).count(), 2);
    let exact = v1::CreateSecretRequest {
        parent: name("pay"),
        secret_id: "planned".to_owned(),
        not_before: after(Duration::ZERO),
        ..v1::CreateSecretRequest::default()
    };
    let exact = service.admin.do_create_secret(service.acme(exact)).await.expect("added").into_inner();
    assert_eq!(exact.not_before, after(Duration::ZERO), "a time that was given is kept");
}

#[tokio::test]
async fn a_secret_is_retired_now_later_or_at_a_time() {
    let service = service().await;
    create(&service, "two", OTHER).await.expect("added");
    let later =
        retire(&service, "old", Some(End::After(time::duration_to_proto(DAY)))).await.expect("retired");
    assert_eq!((later.state(), later.not_after), (v1::SecretState::Retiring, after(DAY)));
    let moved =
        retire(&service, "old", Some(End::At(time::to_proto(NOW.plus(2 * DAY))))).await.expect("moved");
    assert_eq!(moved.not_after, after(2 * DAY));
    let past = Some(End::At(time::to_proto(Timestamp::from_secs(5))));
    let ended = retire(&service, "old", past).await.expect("retired");
    assert_eq!((ended.state(), ended.not_after), (v1::SecretState::Retired, after(Duration::ZERO)));
    assert_eq!(code(retire(&service, "old", None).await), Code::FailedPrecondition, "it has ended");
    let far = Some(End::At(time::to_proto(NOW.plus(91 * DAY))));
    assert_eq!(bad_field(retire(&service, "two", far).await), "at");
    let alone =
        retire(&service, "two", Some(End::After(time::duration_to_proto(DAY)))).await.expect("retired");
    assert!(alone.warnings[0].starts_with("nothing verifies when 'two' ends"), "{:?}", alone.warnings);
}

#[tokio::test]
async fn a_revoked_secret_says_so_and_its_value_does_not_come_back() {
    let service = service().await;
    for wait in [true, true, false] {
        let answer = revoke(&service, "old", wait).await.expect("revoked");
        let secret = answer.secret.expect("a secret");
        assert_eq!((secret.state(), secret.revoke_time), (v1::SecretState::Revoked, after(Duration::ZERO)));
        assert_eq!(answer.unconfirmed_replicas, Vec::<String>::new());
        assert!(answer.revision > 0);
        service.clock.advance(Duration::from_secs(5));
    }
    let again = create(&service, "again", SECRET).await.expect_err("refused");
    assert!(again.message().contains("'old', which was revoked"), "{again}");
    assert!(!again.message().contains(SECRET));
    assert_eq!(code(retire(&service, "old", None).await), Code::FailedPrecondition);
    assert_eq!(code(revoke(&service, "none", true).await), Code::NotFound);
}

#[tokio::test]
async fn a_value_that_verifies_already_is_not_added_twice() {
    let service = service().await;
    let twice = create(&service, "twice", SECRET).await;
    assert_eq!(bad_field(twice), "value");
    retire(&service, "old", None).await.expect("retired");
    create(&service, "back", SECRET).await.expect("a rotation is undone");
}

#[tokio::test]
async fn a_planned_secrets_value_is_not_added_under_another_name_which_would_outlive_its_revocation() {
    let service = service().await;
    let planned = v1::CreateSecretRequest {
        parent: name("pay"),
        secret_id: "planned".to_owned(),
        value: OTHER.to_owned(),
        not_before: after(DAY),
    };
    service.admin.do_create_secret(service.acme(planned)).await.expect("planned");
    assert_eq!(bad_field(create(&service, "again", OTHER).await), "value");
}

#[tokio::test]
async fn each_bad_value_has_its_own_words_and_is_not_repeated() {
    let service = service().await;
    for (value, words) in [
        ("whsec_short", "fewer than 16 bytes"),
        ("whsec_0123456789abcdef\nwhsec_0123456789abcdef", "line break"),
        ("whsec_0123456789 abcdef0123456789", "white space"),
        ("whsec_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "repeats one character"),
        (" \n", "empty"),
    ] {
        let refused = rotate(&service, "bad", value, None).await.expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{value:?}: {refused}");
        assert!(refused.message().contains(words), "{words}: {refused}");
        let shown = format!("{refused:?} {:?}", refused.get_error_details());
        assert!(value.trim().is_empty() || !shown.contains(value.trim()), "{shown}");
    }
    let overlap = rotate(&service, "new", OTHER, Some(91 * DAY)).await;
    assert_eq!(bad_field(overlap), "overlap");
}

#[tokio::test]
async fn the_ninth_secret_is_refused_with_what_to_do() {
    let service = service().await;
    for n in 2..=8 {
        create(&service, &format!("s{n}"), "").await.expect("added");
    }
    for refused in
        [create(&service, "s9", "").await.err(), rotate(&service, "s9", OTHER, Some(DAY)).await.err()]
    {
        let refused = refused.expect("refused");
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("retire or revoke one first"), "{refused}");
    }
    revoke(&service, "s3", false).await.expect("revoked");
    create(&service, "s9", "").await.expect("there is room");
}

#[tokio::test]
async fn only_a_secret_that_does_not_verify_is_deleted() {
    let service = service().await;
    let delete = async || {
        let request = service.acme(v1::DeleteSecretRequest { name: full("old"), ..Default::default() });
        service.admin.do_delete_secret(request).await
    };
    let refused = delete().await.expect_err("it verifies");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("retire it, or revoke it"), "{refused}");
    revoke(&service, "old", false).await.expect("revoked");
    delete().await.expect("deleted");
}

#[tokio::test]
async fn uses_are_shown_with_what_they_tell() {
    let service = service().await;
    rotate(&service, "new", OTHER, Some(20 * DAY)).await.expect("rotated");
    let mut numbers = Vec::new();
    for id in ["old", "new"] {
        let id = SecretId::new(id).expect("valid");
        let source = SourceId::new("pay").expect("valid");
        let row = service.store.secret(&tenant("acme"), &source, &id).await.expect("read");
        numbers.push(row.expect("there").no);
    }
    let used = |no, uses, at: Timestamp| SecretUse {
        secret_no: no,
        day: Day::of(at),
        uses,
        first_at: at,
        last_at: at,
    };
    let uses = [used(numbers[0], 7, NOW), used(numbers[1], 1_204, NOW.plus(4 * DAY))];
    service.store.record_secret_uses(&uses).await.expect("recorded");
    service.clock.advance(4 * DAY);
    let old = get(&service, "old").await;
    assert_eq!((old.uses, old.last_use_time, old.days.len()), (7, after(Duration::ZERO), 1));
    assert_eq!(old.days[0], v1::SecretDay { date: "2025-06-15".to_owned(), uses: 7 });
    let judged = old.safe_to_retire.expect("judged");
    assert!(judged.safe && judged.reason.ends_with("while 'new' verified 1,204 requests"), "{judged:?}");
    let new = get(&service, "new").await.safe_to_retire.expect("judged");
    assert!(!new.safe, "{new:?}");

    service.store.record_secret_uses(&[used(numbers[0], 1, NOW.plus(19 * DAY))]).await.expect("recorded");
    service.clock.advance(15 * DAY + Duration::from_secs(600));
    let source = service.get("pay").await;
    assert!(
        source.warnings.iter().any(|warning| warning.contains("'old' ends in 23 hours")),
        "{:?}",
        source.warnings
    );
}
