//! Whoever gets hold of the database alone, as a file, a dump or a backup, reads neither secrets nor payloads in it.

use std::time::Duration;

use portero_client::v1;

use crate::harness::{Gateway, Kind, Setup, Site, Source, canaries, eventually, get, stripe_event, unique};
use crate::kinds::on_each_store;

const PATIENCE: Duration = Duration::from_secs(30);

on_each_store!(a_database_without_its_keyring_shows_no_secret_no_payload_and_no_refused_request);

async fn a_database_without_its_keyring_shows_no_secret_no_payload_and_no_refused_request(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let word = unique("door-word-of-meta");
    let meta = Source::meta(&mut setup.admin, &gateway, &word).await;
    let check = format!("{}?hub.mode=subscribe&hub.challenge=1&hub.verify_token={word}", meta.path);
    assert!(get(&format!("{}{check}", gateway.edge_url())).await.is_success(), "it is in use");
    let provider = setup.provider(&gateway);
    for number in 0..3 {
        let answer = provider.send(&stripe_event(&format!("evt_{number}"), "entity", number)).await;
        assert!(answer.is_success(), "{answer:?}");
    }
    let mut forged = provider.sign(&stripe_event("evt_forged", "entity", 9));
    forged.body.push(b' ');
    assert_eq!(provider.post(&forged).await.status, 401);
    eventually("the refused request is kept", PATIENCE, async || {
        let request = v1::ListRejectionsRequest { parent: setup.stripe.name.clone(), ..Default::default() };
        let kept = setup.admin.list_rejections(request).await.expect("a list").into_inner().rejections;
        kept.iter().any(|kept| kept.explainable && kept.reason == "SIGNATURE_MISMATCH").then_some(())
    })
    .await;

    let database = content(&site);
    assert!(contains(&database, b"verify_token"), "the setting is there");
    assert!(contains(&database, b"evt_2"), "ids are not hidden, so the search looks at the right bytes");
    let mut finds = canaries::search(&database);
    // It has to be found by it, and lets nobody in.
    finds.retain(|find| find.what != "ingest key");
    for find in &finds {
        assert!(finds.is_empty(), "{} as {}, in {} bytes", find.what, find.form, database.len());
    }
}

/// All that is stored.
fn content(site: &Site) -> Vec<u8> {
    if site.kind == Kind::Sqlite {
        let files = std::fs::read_dir(site.path("data")).expect("a folder").flatten();
        return files.flat_map(|file| std::fs::read(file.path()).expect("readable")).collect();
    }
    let tables = site.query("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()");
    let rows = tables.lines().map(|table| site.query(&format!("SELECT t::text FROM {table} t")));
    rows.collect::<Vec<_>>().join("\n").into_bytes()
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|part| part == wanted)
}
