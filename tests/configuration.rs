//! How gateways follow the configuration: who has applied what, what becomes of one that cannot follow, and of one whose clock
//! is wrong.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portero_client::v1;

use crate::harness::{
    Answer, Consumer, Gateway, Kind, Proxy, Setup, Site, Source, eventually, raw, stripe_event,
};

const PATIENCE: Duration = Duration::from_secs(60);
const CLOCKS_DIFFER: &str = "this machine's clock and the database's differ";

/// The gateways as an administrator sees them: instance, roles, whether it is live, how many changes it is behind.
async fn replicas(gateway: &Gateway) -> Vec<(String, Vec<String>, bool, i64)> {
    let answer =
        gateway.admin().await.list_replicas(v1::ListReplicasRequest {}).await.expect("a list").into_inner();
    let present = answer.config_revision;
    let shown = |replica: v1::Replica| {
        (replica.instance, replica.roles, replica.live, present - replica.config_revision)
    };
    answer.replicas.into_iter().map(shown).collect()
}

async fn names(gateway: &Gateway) -> Vec<String> {
    replicas(gateway).await.into_iter().map(|(instance, ..)| instance).collect()
}

/// Asks whether a URL is there, with a request that carries nothing.
async fn probe(gateway: &Gateway, path: &str) -> Answer {
    let request = format!("HEAD {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    raw(&gateway.edge_address(), request.as_bytes()).await
}

async fn is_ready(gateway: &Gateway) -> (u16, String) {
    let request = "GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let address = gateway.management_url().replace("http://", "");
    let answer = raw(&address, request.as_bytes()).await;
    (answer.status, answer.text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_says_what_it_has_applied_until_it_stops() {
    let site = Site::new(Kind::Postgres);
    let part = |name: &str, roles: &str| Gateway::new(&site).set("INSTANCE_ID", name).set("ROLES", roles);
    let (mut admin, mut edge) = (part("a", "admin"), part("e", "edge"));
    let (mut stream, mut lost) = (part("s", "stream"), part("x", "edge,stream"));
    for gateway in [&mut admin, &mut edge, &mut stream, &mut lost] {
        gateway.launch().await;
    }
    let seen = replicas(&admin).await;
    let roles = |index: usize| seen[index].1.join(",");
    assert_eq!(names(&admin).await, ["a", "e", "s", "x"]);
    assert_eq!([roles(0), roles(1), roles(2), roles(3)], ["admin", "edge", "stream", "edge,stream"]);
    assert!(seen.iter().all(|(.., live, _)| *live), "{seen:?}");

    let tenant =
        v1::CreateTenantRequest { tenant_id: "acme".to_owned(), tenant: Some(v1::Tenant::default()) };
    admin.admin().await.create_tenant(tenant).await.expect("a tenant");
    let began = Instant::now();
    eventually("every gateway has applied the change", PATIENCE, async || {
        replicas(&admin).await.iter().all(|(.., behind)| *behind == 0).then_some(())
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());

    lost.kill();
    edge.terminate();
    assert!(edge.ended(PATIENCE).await.success());
    assert_eq!(names(&admin).await, ["a", "s", "x"], "one that stopped is gone, one that was killed is not");
    site.query("UPDATE replicas SET seen_at = seen_at - 61000000 WHERE instance = 'x'");
    let seen = replicas(&admin).await;
    assert_eq!(seen.last().map(|(name, _, live, _)| (name.as_str(), *live)), Some(("x", false)), "{seen:?}");
    let token = site.path("replicas.token");
    std::fs::write(&token, site.admin_token()).expect("written");
    let shown = site.succeed(&["replica", "list", "--endpoint", &admin.grpc_url(), "--token-file", &token]);
    assert_eq!(shown.lines().count(), 4, "{shown}");
    assert!(shown.lines().next().is_some_and(|heads| heads.contains("BEHIND")), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_edges_of_one_name_are_both_listed_and_both_waited_for() {
    let site = Site::new(Kind::Postgres);
    let part = |name: &str, roles: &str| Gateway::new(&site).set("INSTANCE_ID", name).set("ROLES", roles);
    let mut admin = part("a", "admin").expect("gateways have not applied a change in time");
    let (mut one, mut two) = (part("same", "edge"), part("same", "edge"));
    for gateway in [&mut admin, &mut one, &mut two] {
        gateway.launch().await;
    }
    eventually("the one whose name was taken is listed again", PATIENCE, async || {
        (names(&admin).await == ["a", "same", "same"]).then_some(())
    })
    .await;
    let mut client = admin.admin().await;
    let tenant = v1::CreateTenantRequest { tenant_id: "acme".to_owned(), ..Default::default() };
    client.create_tenant(tenant).await.expect("a tenant");
    let stripe = Source::preset(&mut client, &one, "acme", "stripe").await;
    let mut revoke = async || {
        let name = stripe.add_secret(&mut client, "").await.name;
        let request = v1::RevokeSecretRequest { name, wait: true, ..Default::default() };
        client.revoke_secret(request).await.expect("revoked").into_inner().unconfirmed_replicas
    };
    assert!(revoke().await.is_empty());
    one.signal("STOP");
    assert_eq!(revoke().await, ["same"], "the other one proves nothing for it");
    one.kill();
}

/// As in a crash loop, or when somebody types the command once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_fails_at_its_start_takes_nothing_from_one_that_serves_and_nobody_waits_for_it() {
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::new(&site).set("INSTANCE_ID", "a");
    gateway.launch().await;
    let taken = |setting, address: String| Gateway::new(&site).set("INSTANCE_ID", "a").set(setting, address);
    let failing = [
        (gateway.command(), "cannot listen on"),
        (taken("EDGE__LISTEN", gateway.edge_address()).command(), "cannot listen on"),
        (
            taken("MANAGEMENT__LISTEN", gateway.management_url().replace("http://", "")).command(),
            "cannot listen on",
        ),
        (
            taken("EDGE__TLS__CERT_FILE", site.path("none"))
                .set("EDGE__TLS__KEY_FILE", site.path("none"))
                .command(),
            "[edge.tls]",
        ),
        (
            taken("INSTANCE_ID", "b".to_owned()).set("GRPC__LISTEN", gateway.grpc_address()).command(),
            "cannot listen on",
        ),
    ];
    let sessions = "SELECT session_id, fenced FROM replica_sessions";
    let before = site.query(sessions);
    for (mut command, words) in failing {
        let failed = command.arg("serve").output().expect("it runs");
        let said =
            String::from_utf8_lossy(&failed.stdout).into_owned() + &String::from_utf8_lossy(&failed.stderr);
        assert!(!failed.status.success() && said.contains(words), "{said}");
    }
    assert_eq!(site.query(sessions), before);
    assert_eq!(names(&gateway).await, ["a"]);
    assert_eq!(is_ready(&gateway).await.0, 200);
}

/// Two gateways that reach their Postgres through one proxy, and one that reaches it directly.
async fn two_behind_a_proxy() -> (Arc<Site>, Proxy, [Gateway; 2], Gateway) {
    let site = Site::new(Kind::Postgres);
    let proxy = Proxy::start(Site::postgres_address()).await;
    let behind = || Gateway::new(&site).set("DATABASE__URL", site.postgres_url_at(Some(proxy.port)));
    let (mut one, mut two) = (behind(), behind());
    let direct = Gateway::start(&site).await;
    one.launch().await;
    two.launch().await;
    (site, proxy, [one, two], direct)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_cannot_refresh_for_five_seconds_answer_503_to_everybody_and_recover() {
    let (_site, proxy, gateways, direct) = two_behind_a_proxy().await;
    let setup = Setup::new(&direct).await;
    let (known, unknown) = (setup.stripe.path.clone(), format!("/in/{}", "0".repeat(32)));
    for gateway in &gateways {
        gateway.is_up_to_date().await;
    }
    // Closed connections and silent ones.
    for outage in [Proxy::cut, Proxy::blackhole] {
        outage(&proxy);
        let began = Instant::now();
        for gateway in &gateways {
            assert_eq!(probe(gateway, &known).await.status, 200, "what is known is fresh for some seconds");
            assert_eq!(probe(gateway, &unknown).await.status, 404);
        }
        for gateway in &gateways {
            eventually("nothing is known any more", PATIENCE, async || {
                let answers = [probe(gateway, &known).await, probe(gateway, &unknown).await];
                answers.iter().all(|answer| answer.status == 503).then_some(())
            })
            .await;
        }
        let took = began.elapsed();
        assert!(took > Duration::from_secs(3) && took < Duration::from_secs(8), "{took:?}");
        let answer = setup.provider(&gateways[0]).send(&stripe_event("evt_early", "entity", 0)).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|secs| secs > 0), "{answer:?}");
        assert_eq!(probe(&direct, &known).await.status, 200, "who reads it goes on");
        proxy.heal();
        for gateway in &gateways {
            eventually("it goes on by itself", PATIENCE, async || {
                (probe(gateway, &known).await.status == 200).then_some(())
            })
            .await;
        }
    }
    let consumer = Consumer::start(&direct).await;
    for (index, gateway) in gateways.iter().enumerate() {
        let event = stripe_event(&format!("evt_{index}"), "entity", index);
        let provider = setup.provider(gateway);
        let answer = provider.deliver(&provider.sign(&event), PATIENCE).await;
        assert_eq!(answer.field("status"), "accepted", "{answer:?}");
    }
    consumer.has_acked(2, PATIENCE).await;
    consumer.check_promises();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_changed_during_an_outage_holds_as_soon_as_it_is_over() {
    let (_site, proxy, gateways, direct) = two_behind_a_proxy().await;
    let setup = Setup::new(&direct).await;
    gateways[0].is_up_to_date().await;
    proxy.cut();
    let mut admin = direct.admin().await;
    let name = setup.stripe.name.clone();
    admin.delete_source(v1::DeleteSourceRequest { name, ..Default::default() }).await.expect("deleted");
    eventually("nothing is known any more", PATIENCE, async || {
        (probe(&gateways[0], &setup.stripe.path).await.status == 503).then_some(())
    })
    .await;
    proxy.heal();
    let answer = eventually("it knows something again", PATIENCE, async || {
        let answer = probe(&gateways[0], &setup.stripe.path).await;
        (answer.status != 503).then_some(answer)
    })
    .await;
    assert_eq!(answer.status, 404, "the old configuration never came back: {answer:?}");
}

/// Puts the clock of one database ahead: what its sessions ask for the time answers so much more.
fn set_database_clock(site: &Site, ahead: Option<&str>) {
    let real = "ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO unmoved_clock_timestamp";
    match ahead {
        Some(by) => {
            site.query(real);
            site.query(&format!(
                "CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
                 AS $$ SELECT pg_catalog.unmoved_clock_timestamp() + interval '{by}' $$"
            ));
        }
        None => {
            site.query("DROP FUNCTION pg_catalog.clock_timestamp()");
            site.query("ALTER FUNCTION pg_catalog.unmoved_clock_timestamp() RENAME TO clock_timestamp");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_whose_clock_is_far_off_the_databases_says_so_and_is_not_ready() {
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::start(&site).await;
    assert_eq!(is_ready(&gateway).await.0, 200);
    let skew = async |gateway: &Gateway| gateway.metric("portero_clock_skew_seconds", &[]).await;
    assert!(skew(&gateway).await.abs() < 1.0);
    gateway.kill();

    set_database_clock(&site, Some("42 seconds"));
    gateway.launch().await;
    let (status, text) = eventually("it is not ready", PATIENCE, async || {
        let (status, text) = is_ready(&gateway).await;
        text.contains("clock").then_some((status, text))
    })
    .await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("behind the database's") && text.contains("management.clock_skew_max"), "{text}");
    assert!((skew(&gateway).await + 42.0).abs() < 1.0, "{}", skew(&gateway).await);
    assert_eq!(gateway.log.text().matches(CLOCKS_DIFFER).count(), 1, "said once");
    let seen =
        gateway.admin().await.list_replicas(v1::ListReplicasRequest {}).await.expect("a list").into_inner();
    let told = seen.replicas[0].clock_skew.expect("a skew");
    assert!((-43..=-41).contains(&told.seconds), "{told:?}");

    set_database_clock(&site, None);
    eventually("it is ready again", PATIENCE, async || (is_ready(&gateway).await.0 == 200).then_some(()))
        .await;
    assert_eq!(gateway.log.count("this machine's clock agrees with the database's again"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_database_is_no_wrong_clock() {
    let site = Site::new(Kind::Postgres);
    let proxy = Proxy::start(Site::postgres_address()).await;
    let mut gateway = Gateway::new(&site).set("DATABASE__URL", site.postgres_url_at(Some(proxy.port)));
    gateway.launch().await;
    proxy.delay_answers(Duration::from_millis(400));
    let before = gateway.log.count("the configuration changed");
    let mut admin = Gateway::start(&site).await;
    Setup::new(&admin).await;
    eventually("it has looked meanwhile", PATIENCE, async || {
        (gateway.log.count("the configuration changed") > before).then_some(())
    })
    .await;
    assert!(gateway.metric("portero_clock_skew_seconds", &[]).await.abs() < 0.5);
    assert_eq!(gateway.log.text().matches(CLOCKS_DIFFER).count(), 0);
    proxy.heal();
    admin.terminate();
    admin.ended(PATIENCE).await;
}

/// Gives the role of a viewer past all gateways, so that none of them gets word of it.
fn grant_unheard(site: &Site, subject: &str) {
    site.query(&format!(
        "BEGIN;
         UPDATE config_revision SET revision = revision + 1;
         INSERT INTO grants (grant_id, tenant_no, issuer, subject, role, created_at)
         SELECT '{subject}', tenant_no, 'portero-local', '{subject}', 'viewer', 0 FROM tenants;
         COMMIT"
    ));
}

/// Word of a change may be lost or late, and to a service that is refused a refusal is final.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_granted_elsewhere_a_moment_ago_is_not_refused() {
    let site = Site::new(Kind::Postgres);
    let (one, other) = (Gateway::start(&site).await, Gateway::start(&site).await);
    Setup::new(&one).await;
    other.is_up_to_date().await;
    let acme = || v1::GetTenantRequest { name: "tenants/acme".to_owned() };
    for round in 0..10 {
        let subject = format!("service-{round}");
        let mut admin = other.client(&site.token(&["--subject", &subject])).await.admin();
        let refused = admin.get_tenant(acme()).await.expect_err("it has no grant yet");
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        grant_unheard(&site, &subject);
        admin.get_tenant(acme()).await.unwrap_or_else(|status| panic!("round {round}: {status}"));
    }
}
