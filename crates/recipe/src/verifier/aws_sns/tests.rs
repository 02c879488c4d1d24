use super::super::tests::{NOW, Owned, recipe, sample as untold, try_recipe};
use super::*;
use crate::Recipe;
use crate::certificate::{PrivateKey, fixtures};

const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:T";

fn sns() -> Recipe {
    recipe(r#"{"kind":"aws-sns"}"#)
}

/// A sample at a source that expects its topic.
fn sample(provider: &str, case: &str) -> Owned {
    let mut request = untold(provider, case);
    request.setting("topic_arn", TOPIC);
    request
}

/// A request with the given changes to a notification's members, signed with our own key.
fn ours(changes: &[(&str, Option<&str>)]) -> Owned {
    let mut message: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&sample("aws-sns", "notification-v2").body).expect("JSON");
    message["Signature"] = Encoding::Base64.encode(&[0; 256]).into();
    for (name, value) in changes {
        match value {
            Some(value) => message.insert((*name).to_owned(), (*value).into()),
            None => message.remove(*name),
        };
    }
    let write = |message: &serde_json::Map<_, _>| serde_json::to_vec(message).expect("JSON");
    let mut request = Owned { body: write(&message), ..Owned::default() };
    request.setting("topic_arn", TOPIC);
    let read = request.with(|request| Message::read(request, &[1, 2]));
    if let Ok(read) = read {
        let key = PrivateKey::from_pem(fixtures::RSA_2048_PRIVATE).expect("a key");
        let signature = key.sign(read.algorithm, read.signed.as_bytes()).expect("RSA");
        message["Signature"] = Encoding::Base64.encode(&signature).into();
    }
    request.body = write(&message);
    request.fetched = Some(fixtures::RSA_2048_CERTIFICATE.as_bytes().to_vec());
    request
}

/// A confirmation with another URL to ask for.
fn confirmation(url: &str) -> Owned {
    ours(&[
        ("Type", Some("SubscriptionConfirmation")),
        ("Token", Some("tok")),
        ("Subject", None),
        ("SubscribeURL", Some(url)),
    ])
}

#[test]
fn both_samples_ask_for_their_certificate_and_verify_under_it() {
    for case in ["notification-v2", "subscription-confirmation"] {
        let request = sample("aws-sns", case);
        let fetch = request.fetch(&sns(), &[]).expect("harmless").expect("needed");
        assert_eq!(fetch.url, "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-offline.pem");
        assert_eq!(request.verify(&sns(), &[], NOW), Ok(None), "{case}");
    }
}

#[test]
fn a_changed_byte_of_the_body_is_refused_or_asks_for_another_certificate() {
    let good = sample("aws-sns", "notification-v2");
    let url = |request: &Owned| request.fetch(&sns(), &[]).map(|fetch| fetch.expect("needed").url);
    let own = url(&good).expect("harmless");
    for byte in 0..good.body.len() {
        let mut request = good.clone();
        request.body[byte] ^= 1;
        let is_harmless = request.refused(&sns(), &[], NOW).is_some() || url(&request) != Ok(own.clone());
        assert!(is_harmless, "byte {byte}");
    }
}

#[test]
fn version_1_is_sha_1_and_a_recipe_may_refuse_it() {
    let request = ours(&[("SignatureVersion", Some("1"))]);
    assert_eq!(request.verify(&sns(), &[], NOW), Ok(None));
    let only_2 = recipe(r#"{"kind":"aws-sns","versions":[2]}"#);
    assert_eq!(request.unfetched(&only_2, &[]), Some(Reason::SignatureMalformed));
    assert_eq!(ours(&[]).verify(&only_2, &[], NOW), Ok(None));
    for version in ["0", "3", "", "1.0"] {
        let request = ours(&[("SignatureVersion", Some(version))]);
        assert_eq!(request.unfetched(&sns(), &[]), Some(Reason::SignatureMalformed), "{version}");
    }
    for bad in [r#"{"kind":"aws-sns","versions":[]}"#, r#"{"kind":"aws-sns","versions":[3]}"#] {
        assert_eq!(try_recipe(bad).err().as_deref(), Some("schemes[0].verifier.versions"));
    }
}

#[test]
fn a_subject_is_signed_only_where_there_is_one() {
    assert_eq!(ours(&[("Subject", None)]).verify(&sns(), &[], NOW), Ok(None));
    assert_eq!(ours(&[("Message", Some("two\nlines"))]).verify(&sns(), &[], NOW), Ok(None));
    for name in ["Message", "MessageId", "Timestamp", "TopicArn", "Type"] {
        assert_eq!(ours(&[(name, None)]).unfetched(&sns(), &[]), Some(Reason::SignedPartMissing), "{name}");
    }
}

#[test]
fn no_signed_text_can_be_split_in_two_ways() {
    for name in ["MessageId", "Subject", "Timestamp"] {
        let request = ours(&[(name, Some("a\nTopicArn\nb"))]);
        assert_eq!(request.unfetched(&sns(), &[]), Some(Reason::BodyMalformed), "{name}");
    }
    // The line of the subject moved into the message: it is the same text, but the member is gone.
    let good = ours(&[("Subject", Some("S")), ("Message", Some("M"))]);
    let mut message: serde_json::Value = serde_json::from_slice(&good.body).expect("JSON");
    message["Message"] = "M\nMessageId\nsns-1\nSubject\nS".into();
    message.as_object_mut().expect("an object").remove("Subject");
    let moved = Owned { body: message.to_string().into_bytes(), ..good };
    assert!(moved.refused(&sns(), &[], NOW).is_some());
}

#[test]
fn certificates_come_from_sns_alone() {
    for url in [
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a1b.pem",
        "https://sns.cn-north-1.amazonaws.com.cn/SimpleNotificationService-0a1b.pem",
        "https://sns.us-gov-west-1.amazonaws.com/SimpleNotificationService-0a1b.pem",
    ] {
        assert_eq!(ours(&[("SigningCertURL", Some(url))]).unfetched(&sns(), &[]), None, "{url}");
    }
    for url in [
        "http://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a1b.pem",
        "https://sns.us-east-1.amazonaws.com.evil.example/SimpleNotificationService-0a1b.pem",
        "https://evil.example/SimpleNotificationService-0a1b.pem",
        "https://sns.evil.example.amazonaws.com/SimpleNotificationService-0a1b.pem",
        "https://sns..amazonaws.com/SimpleNotificationService-0a1b.pem",
        "https://sns.amazonaws.com/SimpleNotificationService-0a1b.pem",
        "https://bucket.s3.amazonaws.com/SimpleNotificationService-0a1b.pem",
        "https://sns.us-east-1.amazonaws.com:444/SimpleNotificationService-0a1b.pem",
        "https://a@sns.us-east-1.amazonaws.com/SimpleNotificationService-0a1b.pem",
        "https://sns.us-east-1.amazonaws.com/x/SimpleNotificationService-0a1b.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-a/../b.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-.pem?x=.pem",
        "https://sns.us-east-1.amazonaws.com/?x=SimpleNotificationService-a.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-.pem",
    ] {
        let request = ours(&[("SigningCertURL", Some(url))]);
        assert_eq!(request.unfetched(&sns(), &[]), Some(Reason::FetchedKeyInvalid), "{url}");
    }
}

#[test]
fn another_topic_is_refused_and_so_is_any_where_the_source_names_none() {
    let mut request = untold("aws-sns", "notification-v2");
    assert_eq!(request.refused(&sns(), &[], NOW), Some(Reason::SettingMissing));
    request.setting("topic_arn", TOPIC);
    assert_eq!(request.verify(&sns(), &[], NOW), Ok(None));
    request.setting("topic_arn", "arn:aws:sns:us-east-1:123456789012:U");
    assert_eq!(request.unfetched(&sns(), &[]), Some(Reason::NotForThisSource));
    assert_eq!(request.refused(&sns(), &[], NOW), Some(Reason::NotForThisSource));
}

#[test]
fn only_the_expected_topic_is_confirmed() {
    let request = sample("aws-sns", "subscription-confirmation");
    let fetch = request.follow_up(&sns()).expect("a confirmation");
    assert_eq!(fetch.url, "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=tok");
    assert!(fetch.cache_for.is_zero() && fetch.post_json.is_none());
    let notification = sample("aws-sns", "notification-v2");
    assert!(notification.follow_up(&sns()).is_none());
}

#[test]
fn a_confirmation_goes_to_the_host_of_the_certificate_and_confirms_nothing_else() {
    let good =
        "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:x&Token=t";
    assert!(confirmation(good).follow_up(&sns()).is_some());
    for url in [
        "https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&Token=t",
        "https://evil.example/?Action=ConfirmSubscription&Token=t",
        "http://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=t",
        "https://sns.us-east-1.amazonaws.com/?Action=DeleteTopic&Token=t",
        "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Action=DeleteTopic",
        "https://sns.us-east-1.amazonaws.com/x?Action=ConfirmSubscription&Token=t",
        "https://sns.us-east-1.amazonaws.com:1/?Action=ConfirmSubscription&Token=t",
    ] {
        assert!(confirmation(url).follow_up(&sns()).is_none(), "{url}");
    }
    let unsubscribed = ours(&[
        ("Type", Some("UnsubscribeConfirmation")),
        ("Token", Some("tok")),
        ("SubscribeURL", Some(good)),
    ]);
    assert!(unsubscribed.follow_up(&sns()).is_none(), "nobody is subscribed again against their will");
}

#[test]
fn a_body_of_another_shape_is_refused_before_anything_is_fetched() {
    let twice = br#"{"Type":"Notification","Type":"Notification"}"#;
    for body in [&b""[..], b"{}", b"[]", b"null", b"\xFF", b"{\"Type\":1}", b"{\"Type\":\"Other\"}", twice] {
        let request = Owned { body: body.to_vec(), ..Owned::default() };
        assert!(request.unfetched(&sns(), &[]).is_some(), "{}", String::from_utf8_lossy(body));
    }
    let deep = Owned { body: b"[".repeat(100_000), ..Owned::default() };
    assert_eq!(deep.unfetched(&sns(), &[]), Some(Reason::BodyMalformed));
}
