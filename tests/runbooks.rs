//! docs/security.md tells the truth: each runbook's commands are taken out of the page and run from the first to the last,
//! against gateways on Postgres, and what the page promises after them is looked at.

mod page;
mod stage;

use page::{Runbook, Step};
use stage::Stage;

/// Makes a test per runbook, and the list of all.
macro_rules! runbooks {
    ($($name:ident: $title:literal,)*) => {
        const TITLES: &[&str] = &[$($title),*];

        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                follow($title).await;
            }
        )*
    };
}

runbooks! {
    a_providers_secret_is_rotated: "Rotating a provider's secret",
    many_secrets_are_rotated: "Rotating many secrets",
    a_leaked_secret_is_revoked: "A leaked provider secret",
    a_leaked_token_loses_its_grants: "A leaked token",
    a_leaked_issuers_key_is_replaced: "A leaked token of the local issuer, or its key",
    the_key_encryption_key_is_replaced: "A new key-encryption key",
    data_keys_are_replaced: "A compromised data key",
    a_tenant_is_erased: "Erasing a tenant",
    the_audit_log_is_verified: "Audit verification",
}

/// Follows a runbook to its end.
async fn follow(title: &'static str) {
    let runbook = page::runbooks().into_iter().find(|runbook| runbook.title == title);
    let Runbook { steps, .. } = runbook.unwrap_or_else(|| panic!("no runbook {title:?} in the page"));
    let mut stage = Stage::set(title).await;
    for step in steps {
        match step {
            Step::Run(commands) => stage.run(&commands).await,
            Step::Do(what) => stage.act(&what).await,
            Step::See(what) => stage.look(&what).await,
        }
    }
    stage.end().await;
}

#[test]
fn every_runbook_of_the_page_is_followed_and_none_is_without_commands() {
    let found: Vec<String> = page::runbooks().into_iter().map(|runbook| runbook.title).collect();
    assert_eq!(found, TITLES);
    for runbook in page::runbooks() {
        let runs = |step: &Step| matches!(step, Step::Run(_));
        assert!(runbook.steps.iter().any(runs), "{} has no command", runbook.title);
    }
}
