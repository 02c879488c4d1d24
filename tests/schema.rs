//! Starting: the schema and the settings must fit, or the program says what to do.

use std::process::{Command, Output};

use crate::harness::{Gateway, Kind, Site, output};
use crate::kinds::on_each_store;

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn run(mut command: Command, arguments: &[&str]) -> Output {
    output(command.args(arguments))
}

on_each_store!(an_empty_database_is_refused_with_the_command_that_helps_and_migrating_twice_is_fine);

async fn an_empty_database_is_refused_with_the_command_that_helps_and_migrating_twice_is_fine(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::new(&site);
    let refused = run(gateway.command(), &["serve"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(text(&refused).contains("portero migrate"), "{}", text(&refused));

    // As the chart's job runs it: the database's settings, and nothing else.
    let migrate = || {
        let mut command = Site::program();
        command.current_dir(site.folder_path()).env("PORTERO__DATABASE__URL", site.database_url());
        run(command, &["migrate"])
    };
    for _ in 0..2 {
        let migrated = migrate();
        assert!(migrated.status.success(), "{}", text(&migrated));
    }
    let mut gateway = gateway.without_migrating();
    gateway.launch().await;
    gateway.terminate();
    let status = gateway.ended(std::time::Duration::from_secs(20)).await;
    assert_eq!(status.code(), Some(0), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_is_wrong_with_the_settings_is_said_at_once() {
    let site = Site::new(Kind::Sqlite);
    let file = site.path("wrong.toml");
    let settings =
        "colour = 1\n[edge]\nlissten = \"127.0.0.1:1\"\nbody_max = \"12 parsecs\"\n[colours]\nred = 1\n";
    std::fs::write(&file, settings).expect("written");
    for command in [&["serve"][..], &["config", "check"], &["migrate"]] {
        let gateway = Gateway::new(&site).set("GRPC__PROT", "1").set("SHUTDOWN__DRAIN_DELAY", "soon");
        let refused = run(gateway.command(), &[command, &["--config", &file]].concat());
        let said = text(&refused);
        assert_eq!(refused.status.code(), Some(64), "{command:?}: {said}");
        for place in
            ["colour", "colours", "edge.lissten", "edge.body_max", "grpc.prot", "shutdown.drain_delay"]
        {
            assert!(said.contains(place), "{command:?} does not name {place}: {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_without_a_keyring_says_how_to_make_one() {
    let site = Site::new(Kind::Sqlite);
    let migrated = run(Gateway::new(&site).command(), &["migrate"]);
    assert!(migrated.status.success(), "{}", text(&migrated));
    let refused = run(Gateway::new(&site).without("KEYRING__PATH").command(), &["serve"]);
    assert!(!refused.status.success());
    assert!(text(&refused).contains("portero keyring generate"), "{}", text(&refused));
}
