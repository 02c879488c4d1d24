//! Settings that are secrets: in effect, shown to nobody, and sealed again with new keys.

use std::time::Duration;

use portero_recipe::Recipe;
use serde_json::{Value, json};

use crate::harness::{
    Answer, Gateway, Kind, Provider, Setup, Site, Source, canaries, eventually, get, output, plant_path,
    unique,
};
use crate::kinds::on_each_store;
use crate::operator::{Operator, said};

const PATIENCE: Duration = Duration::from_secs(30);

/// Meta's check of a URL, with this token.
async fn check(gateway: &Gateway, path: &str, token: &str) -> Answer {
    let query = format!("hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token={token}");
    get(&format!("{}{path}?{query}", gateway.edge_url())).await
}

#[track_caller]
fn is_answered(answer: &Answer) {
    assert_eq!((answer.status, answer.text.as_str()), (200, "1158201444"), "{answer:?}");
}

#[track_caller]
fn is_refused(answer: &Answer) {
    assert_eq!((answer.status, answer.reason().as_str()), (401, "HANDSHAKE_TOKEN_MISMATCH"), "{answer:?}");
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

on_each_store!(metas_check_is_answered_with_a_token_that_nobody_is_shown);

async fn metas_check_is_answered_with_a_token_that_nobody_is_shown(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let operator = Operator::at(&gateway);
    let word = unique("door-word-of-meta");
    canaries::plant("secret setting", &word);
    std::fs::write(site.path("word.txt"), format!("{word}\n")).expect("written");

    let created = operator.json("source create acme chat --preset meta --setting-file verify_token=word.txt");
    assert_eq!((&created["settings"], &created["secret_settings"]), (&json!({}), &json!(["verify_token"])));
    let path = text(&created["ingest_path"]);
    plant_path(&path);
    let recipe = Recipe::preset("meta").expect("a preset");
    let mut meta = Source { name: text(&created["name"]), path: path.clone(), secret: String::new(), recipe };
    meta.secret = meta.add_secret(&mut setup.admin, "").await.value;
    meta.is_known(&gateway).await;

    is_answered(&check(&gateway, &path, &word).await);
    is_refused(&check(&gateway, &path, "another-word").await);
    is_refused(&check(&gateway, &path, &meta.secret).await);
    let event = json!({ "object": "page", "entry": [{ "id": "1", "time": 1, "changes": [] }] });
    let accepted = Provider::new(&gateway, &meta).send(event.to_string().as_bytes()).await;
    assert!(accepted.is_success(), "{accepted:?}");

    let request = format!(
        "GET {path}?hub.mode=subscribe&hub.challenge=1&hub.verify_token={word} HTTP/1.1\r\nhost: x\r\n\r\n"
    );
    std::fs::write(site.path("request.http"), request).expect("written");
    let kept = operator.json("source update acme chat --public-url https://hooks.example.com/in/1");
    assert_eq!(kept["secret_settings"], json!(["verify_token"]), "what is not named stays");
    for words in [
        "source update acme chat --public-url https://hooks.example.com/in/1",
        "source get acme chat",
        "source list acme",
        "audit list --tenant acme",
        "rejection list acme chat",
        "rejection explain acme chat --request request.http",
        "verify --preset meta --setting-file verify_token=word.txt --request request.http",
    ] {
        let shown = if words.starts_with("verify") {
            output(Site::program().current_dir(site.folder_path()).args(words.split(' ')))
        } else {
            operator.run(words)
        };
        assert!(shown.status.success(), "{words}: {}", said(&shown));
        let mut finds = canaries::search(said(&shown).as_bytes());
        // Who manages a source is told its URL.
        finds.retain(|find| find.what != "ingest key");
        assert_eq!(finds, [], "{words}");
    }
    is_answered(&check(&gateway, &path, &word).await);

    let without = operator.json("source update acme chat --unset verify_token");
    assert_eq!(without["secret_settings"], json!([]));
    is_refused(&check(&gateway, &path, &word).await);
    is_answered(&check(&gateway, &path, &meta.secret).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_setting_is_sealed_with_new_keys_and_a_damaged_one_refuses_nothing_for_good() {
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::new(&site).expect("a source is disabled");
    gateway.launch().await;
    let mut setup = Setup::new(&gateway).await;
    let word = unique("door-word-of-meta");
    let meta = Source::meta(&mut setup.admin, &gateway, &word).await;
    let rotated = output(gateway.command().args(["keyring", "rotate-data-keys", "--output", "json"]));
    let told = String::from_utf8_lossy(&rotated.stdout).into_owned();
    assert_eq!(told.trim(), r#"{"tenants":1,"secrets":2,"settings":1,"failed":0}"#, "{}", said(&rotated));
    let key = "SELECT substr(split_part(sealed_settings::json->>'verify_token', '.', 2), 1, 6) FROM sources WHERE source_id = 'chat'";
    assert_eq!(site.query(key), "010002", "the format, and the version of the data key");
    is_answered(&check(&gateway, &meta.path, &word).await);
    gateway.terminate();
    gateway.ended(PATIENCE).await;
    gateway.launch().await;
    is_answered(&check(&gateway, &meta.path, &word).await);

    // A version that the tenant has not.
    site.query("UPDATE sources SET sealed_settings = replace(sealed_settings, '.010002', '.010009')");
    gateway.terminate();
    gateway.ended(PATIENCE).await;
    gateway.launch().await;
    let refused = check(&gateway, &meta.path, &word).await;
    assert_eq!(refused.status, 503, "it comes again later: {refused:?}");
    let operator = Operator::at(&gateway);
    let told = operator.json("source get acme chat")["warnings"].to_string();
    assert!(told.contains("the setting verify_token is given anew"), "{told}");
    std::fs::write(site.path("word.txt"), &word).expect("written");
    operator.json("source update acme chat --setting-file verify_token=word.txt");
    eventually("the check is answered again", PATIENCE, async || {
        (check(&gateway, &meta.path, &word).await.status == 200).then_some(())
    })
    .await;
}
