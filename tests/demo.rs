//! The payment laboratory, as someone runs it who has just built the program.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{Site, output};

/// Runs the demo with `folder` as the place for temporary files.
fn demo(folder: &Path, arguments: &[&str]) -> Output {
    let mut command: Command = Site::program();
    output(command.arg("demo").args(arguments).env("TMPDIR", folder))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn the_demo_shows_five_wrong_orders_without_portero_and_none_with_it() {
    let folder = tempfile::tempdir().expect("folder");
    let output = demo(folder.path(), &[]);
    let (shown, log) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{shown}\n{log}");
    for figure in [
        "200 accepted",
        "200 duplicate",
        "401 SIGNATURE_MISMATCH",
        "401 TIMESTAMP_TOO_OLD",
        "deferred, then applied",
        "5 wrong orders, $115,500 credited too much",
        "zero differences",
        "✓ refunded       $0",
    ] {
        assert!(shown.contains(figure), "{figure}: {shown}");
    }
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    assert_eq!(log, "", "logs are hidden");
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_demos_figures_are_one_json_object_too() {
    let folder = tempfile::tempdir().expect("folder");
    let output = demo(folder.path(), &["--output", "json"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", text(&output.stderr));
    assert_eq!(shown.lines().count(), 1, "{shown}");
    let report: Value = serde_json::from_str(shown).expect("JSON");
    assert_eq!(report["clean"], true);
    assert_eq!(report["problems"], serde_json::json!([]));
    let totals = |wrong: u64, too_much: u64| {
        serde_json::json!({
            "wrong_orders": wrong, "credited_too_much_cents": too_much, "credited_too_little_cents": 0
        })
    };
    assert_eq!((&report["naive"], &report["portero"]), (&totals(5, 11_550_000), &totals(0, 0)));
    let deliveries = report["deliveries"].as_array().expect("deliveries");
    let of = |outcome: &str| deliveries.iter().filter(|line| line["portero"]["outcome"] == outcome).count();
    assert_eq!((deliveries.len(), of("accepted"), of("duplicate")), (9, 5, 2));
    assert!(deliveries.iter().all(|line| line["naive_status"] == 200), "{shown}");
    let reasons: Vec<&str> =
        deliveries.iter().filter_map(|line| line["portero"]["reason"].as_str()).collect();
    assert_eq!(reasons, ["SIGNATURE_MISMATCH", "TIMESTAMP_TOO_OLD"]);
    let refund = deliveries.iter().find(|line| line["event_type"] == "payment.refunded").expect("a refund");
    assert_eq!(refund["consumer"], serde_json::json!(["defer", "ack"]));
    let orders = report["orders"].as_array().expect("orders");
    assert_eq!(orders.len(), 5);
    assert!(orders.iter().all(|order| order["provider"] == order["portero"]), "{shown}");
    assert!(orders.iter().all(|order| order["provider"] != order["naive"]), "{shown}");
}
