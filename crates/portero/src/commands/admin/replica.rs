//! `portero replica`.

use portero_client::v1;
use serde::Serialize;

use super::name;
use crate::cli::ReplicaCommand;
use crate::commands::connection::AdminApi;
use crate::commands::present::{self, Listing, Record};

/// Runs one of its commands.
pub(crate) async fn run(command: ReplicaCommand) -> anyhow::Result<()> {
    let ReplicaCommand::List { common } = command;
    let api = AdminApi::open(&common.connect).await?;
    let mut calls = api.calls();
    let answer = api.ask(calls.list_replicas(v1::ListReplicasRequest {})).await?;
    let mut listing = Listing::new(common.output.output);
    for replica in answer.replicas {
        listing.push(&Replica::new(replica, answer.config_revision))?;
    }
    listing.finish()
}

/// A replica as it is shown.
#[derive(Debug, Serialize)]
struct Replica {
    name: String,
    replica: String,
    instance: String,
    live: bool,
    roles: Vec<String>,
    version: String,
    config_revision: i64,
    /// How many changes it had not applied.
    behind: i64,
    clock_skew_seconds: f64,
    start_time: Option<String>,
    last_seen_time: Option<String>,
}

impl Replica {
    fn new(replica: v1::Replica, present: i64) -> Self {
        let skew = replica.clock_skew.unwrap_or_default();
        // A billion seconds and their milliseconds fit.
        #[expect(clippy::cast_precision_loss, reason = "a difference of clocks, to the millisecond")]
        let clock_skew_seconds = skew.seconds as f64 + f64::from(skew.nanos / 1_000_000) / 1_000.0;
        Self {
            replica: name::id(&replica.name, 0),
            name: replica.name,
            instance: replica.instance,
            live: replica.live,
            roles: replica.roles,
            version: replica.version,
            config_revision: replica.config_revision,
            behind: present.saturating_sub(replica.config_revision).max(0),
            clock_skew_seconds,
            start_time: present::time(replica.start_time.as_ref()),
            last_seen_time: present::time(replica.last_seen_time.as_ref()),
        }
    }
}

impl Record for Replica {
    const COLUMNS: &'static [&'static str] =
        &["INSTANCE", "LIVE", "ROLES", "REVISION", "BEHIND", "CLOCK", "VERSION", "STARTED", "SEEN"];

    fn row(&self) -> Vec<String> {
        vec![
            self.instance.clone(),
            if self.live { "yes" } else { "no" }.to_owned(),
            self.roles.join(", "),
            self.config_revision.to_string(),
            self.behind.to_string(),
            format!("{:+.3} s", self.clock_skew_seconds),
            self.version.clone(),
            self.start_time.clone().unwrap_or_default(),
            self.last_seen_time.clone().unwrap_or_default(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        vec![("replica", self.replica.clone()), ("instance", self.instance.clone())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_is_stable() {
        let replica = v1::Replica {
            name: "replicas/repl_0".to_owned(),
            instance: "gateway-1".to_owned(),
            roles: vec!["edge".to_owned(), "stream".to_owned()],
            version: "0.1.0".to_owned(),
            config_revision: 40,
            clock_skew: Some(prost_types::Duration { seconds: -1, nanos: -250_000_000 }),
            live: true,
            ..v1::Replica::default()
        };
        let shown = Replica::new(replica, 42);
        let wanted = serde_json::json!({
            "name": "replicas/repl_0", "replica": "repl_0", "instance": "gateway-1", "live": true,
            "roles": ["edge", "stream"], "version": "0.1.0", "config_revision": 40, "behind": 2,
            "clock_skew_seconds": -1.25, "start_time": null, "last_seen_time": null,
        });
        assert_eq!(serde_json::to_value(&shown).expect("serialises"), wanted);
        assert_eq!(shown.row().len(), Replica::COLUMNS.len());
        assert!(shown.row().contains(&"-1.250 s".to_owned()));
    }
}
