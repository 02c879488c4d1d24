//! Replicas: what a process that reports is told, and what others see of it.

use portero_types::{ReplicaId, Timestamp};

use super::Database;
use super::fixture::{Fixture, NOW, fresh, new_tenant, random, tester};
use crate::{Replica, ReplicaEcho, ReplicaReport, Revision};

/// What a process says of itself, for the first time.
pub(super) fn report(instance: &str, roles: &[&str], revision: Revision) -> ReplicaReport {
    ReplicaReport {
        replica: ReplicaId::new(NOW, random(fresh())),
        instance: instance.to_owned(),
        first: true,
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        revision,
        clock: NOW,
        version: "1.2.3".to_owned(),
        key_id: "v2".to_owned(),
    }
}

async fn told(fixture: &Fixture, report: &ReplicaReport) -> ReplicaEcho {
    fixture.store.report(report).await.expect("an echo")
}

async fn listed(fixture: &Fixture) -> Vec<Replica> {
    fixture.store.replicas().await.expect("a list")
}

async fn names(fixture: &Fixture) -> Vec<String> {
    listed(fixture).await.into_iter().map(|replica| replica.instance).collect()
}

pub async fn a_report_is_told_the_revision_and_the_databases_clock(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let mut mine = report("one", &["edge", "admin"], Revision(0));
    let present = fixture.store.revision().await.expect("a revision");
    let first = told(&fixture, &mine).await;
    assert_eq!((first.revision, first.edges, first.others), (present, 1, 0));
    assert!(first.database_time > Timestamp::from_secs(1_700_000_000), "{:?}", first.database_time);
    assert!(!first.history.is_empty());
    fixture.store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    mine.revision = present;
    let second = told(&fixture, &mine).await;
    assert_eq!(second.revision, Revision(present.0 + 1));
    assert!(second.database_time >= first.database_time);
    assert_eq!(second.history, first.history, "nothing was lost");
    assert_eq!(
        fixture.store.revision().await.expect("a revision"),
        second.revision,
        "reports are not configuration"
    );
}

pub async fn what_a_replica_has_applied_is_seen_at_once(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let mut mine = report("one", &["edge", "stream"], Revision(7));
    let first = told(&fixture, &mine).await;
    let seen = listed(&fixture).await;
    let [replica] = seen.as_slice() else { panic!("one replica, not {seen:?}") };
    assert_eq!((replica.id, replica.instance.as_str()), (mine.replica, "one"));
    assert_eq!(
        (&replica.roles, replica.version.as_str(), replica.key_id.as_str()),
        (&mine.roles, "1.2.3", "v2")
    );
    assert_eq!((replica.revision, replica.live), (Revision(7), true));
    assert_eq!(replica.seen_at, replica.started_at);
    assert!(replica.seen_at <= first.database_time);
    let behind = replica.seen_at.as_micros() - NOW.as_micros();
    assert!((replica.skew_micros + behind).abs() < 60_000_000, "the clock it told against the database's");
    for revision in [8, 12, 3] {
        mine.revision = Revision(revision);
        told(&fixture, &mine).await;
        let seen = listed(&fixture).await;
        assert_eq!(seen.iter().map(|replica| replica.revision.0).collect::<Vec<_>>(), [revision]);
        assert_eq!(seen[0].started_at, replica.started_at);
    }
}

pub async fn replicas_that_signed_off_are_gone(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (one, two) = (report("one", &["edge"], Revision(1)), report("two", &["edge"], Revision(1)));
    told(&fixture, &two).await;
    assert_eq!(told(&fixture, &one).await.edges, 2);
    assert_eq!(names(&fixture).await, ["one", "two"], "in the order of names");
    for _ in 0..2 {
        fixture.store.sign_off(two.replica).await.expect("signed off, again or not");
    }
    assert_eq!(names(&fixture).await, ["one"]);
    assert_eq!(told(&fixture, &one).await.edges, 1);
}

pub async fn a_silent_replica_is_no_longer_live_and_takes_no_share(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (one, two) = (report("one", &["edge"], Revision(1)), report("two", &["edge"], Revision(1)));
    told(&fixture, &two).await;
    told(&fixture, &one).await;
    told(&fixture, &report("three", &["stream", "admin"], Revision(1))).await;
    let echo = told(&fixture, &one).await;
    assert_eq!((echo.edges, echo.others), (2, 2), "the third takes no webhooks");
    let live_edges = async || listed(&fixture).await.iter().filter(|replica| replica.is_live_edge()).count();
    assert_eq!(live_edges().await, 2);
    database.execute("UPDATE replicas SET seen_at = seen_at - 61000000 WHERE instance = 'two'").await;
    let echo = told(&fixture, &one).await;
    assert_eq!((echo.edges, echo.others), (1, 1));
    assert_eq!(live_edges().await, 1);
    assert_eq!(names(&fixture).await, ["one", "three", "two"], "it is shown all the same");
    told(&fixture, &two).await;
    assert_eq!(live_edges().await, 2, "it goes on");
}

pub async fn replicas_gone_for_a_day_are_swept(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (one, two) = (report("one", &["edge"], Revision(1)), report("two", &["edge"], Revision(1)));
    told(&fixture, &one).await;
    told(&fixture, &two).await;
    database.execute("UPDATE replicas SET seen_at = seen_at - 86401000000 WHERE instance = 'two'").await;
    assert_eq!(names(&fixture).await, ["one"], "it is not shown any more");
    told(&fixture, &report("three", &["edge"], Revision(1))).await;
    // What was not swept would be shown again.
    database.execute("UPDATE replicas SET seen_at = seen_at + 86401000000 WHERE instance = 'two'").await;
    assert_eq!(names(&fixture).await, ["one", "three"]);
}

pub async fn a_process_takes_the_place_of_an_older_one_of_its_name(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (old, new) = (report("one", &["edge"], Revision(1)), report("one", &["edge"], Revision(2)));
    told(&fixture, &old).await;
    assert_eq!(told(&fixture, &new).await.edges, 1);
    let seen = listed(&fixture).await;
    assert_eq!(seen.iter().map(|replica| replica.id).collect::<Vec<_>>(), [new.replica]);
}

pub async fn two_live_processes_of_one_name_are_both_there(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (mut one, mut two) = (report("one", &["edge"], Revision(1)), report("one", &["edge"], Revision(2)));
    told(&fixture, &report("other", &["edge"], Revision(1))).await;
    assert_eq!(told(&fixture, &one).await.edges, 2);
    assert_eq!(told(&fixture, &two).await.edges, 2, "it took the place of the other");
    (one.first, two.first) = (false, false);
    for round in 3..6 {
        (one.revision, two.revision) = (Revision(round), Revision(round + 10));
        for report in [&one, &two] {
            let echo = told(&fixture, report).await;
            assert_eq!((echo.edges, echo.others), (3, 2), "round {round}");
        }
        let mut seen: Vec<_> =
            listed(&fixture).await.into_iter().map(|replica| (replica.id, replica.revision)).collect();
        seen.retain(|(id, _)| [one.replica, two.replica].contains(id));
        seen.sort_unstable_by_key(|(_, revision)| *revision);
        assert_eq!(seen, [(one.replica, one.revision), (two.replica, two.revision)], "round {round}");
    }
    fixture.store.sign_off(two.replica).await.expect("signed off");
    assert_eq!(told(&fixture, &one).await.edges, 2);
}

pub async fn what_a_process_says_first_may_be_said_again(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (one, mut two) = (report("one", &["edge"], Revision(1)), report("one", &["edge"], Revision(2)));
    told(&fixture, &one).await;
    two.first = false;
    told(&fixture, &two).await;
    // Its answer may have been lost the first time. By now it is known, so it takes nobody's place any more.
    assert_eq!(told(&fixture, &one).await.edges, 2);
    assert_eq!(listed(&fixture).await.len(), 2);
}
