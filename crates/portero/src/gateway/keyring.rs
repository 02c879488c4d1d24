//! The keyring at start: read, and fit for what the database holds.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use metrics::{describe_gauge, gauge};
use portero_keyring::{KeyId, Keyring, UNPROTECTED};
use portero_store::{DynStore, KeyUse, TenantKey};

use crate::config::KeyringSection;

/// How many data keys are tried with a keyring at start.
const TRIED: u32 = 256;
const UNPROTECTED_GAUGE: &str = "portero_keyring_unprotected";

/// Reads the keyring that the settings name.
pub(crate) fn keyring(section: &KeyringSection) -> anyhow::Result<Keyring> {
    let KeyringSection { path, active, unprotected } = section;
    let Some(path) = path else {
        if *unprotected {
            return Ok(Keyring::unprotected());
        }
        bail!(
            "no keyring is configured: make one with `portero keyring generate FILE` and set keyring.path. Without one whoever \
             reads the database reads all secrets and events; if that may be so, set keyring.unprotected = true"
        );
    };
    let ring = match active {
        Some(active) if path.is_dir() => {
            let active = KeyId::new(active.as_str()).context("keyring.active is not the name of a key")?;
            Keyring::load_folder(path, active)
        }
        None if path.is_dir() => {
            bail!("keyring.path is a folder: set keyring.active to the name of the key that seals")
        }
        _ => Keyring::load(path),
    };
    let ring = ring.context("the keyring cannot be used")?;
    Ok(if *unprotected { ring.taking_unprotected() } else { ring })
}

/// Refuses a keyring that lacks a key which data keys in the database need, or has another one under its name.
pub(super) async fn require_every_key(keyring: &Keyring, store: &DynStore) -> anyhow::Result<()> {
    let uses = store.key_uses().await.context("the data keys cannot be read")?;
    if let Some(text) = missing(keyring, &uses) {
        bail!(text);
    }
    let some = store.keys_not_under("", None, TRIED).await.context("the data keys cannot be read")?;
    match namesake(keyring, &some) {
        None => Ok(()),
        Some(id) => bail!(
            "the keyring's key {id} opens nothing that was wrapped under a key of that name: is it the keyring of another \
             installation? Nothing was started"
        ),
    }
}

/// The name of a key that opens none of the data keys that are wrapped under it. One that opens some is the right one, whatever
/// became of the others.
fn namesake<'k>(keyring: &Keyring, wrapped: &'k [TenantKey]) -> Option<&'k str> {
    let mut opened: BTreeMap<&str, bool> = BTreeMap::new();
    for TenantKey { tenant, key, .. } in wrapped {
        *opened.entry(&key.key_id).or_default() |= keyring.unwrap(key, tenant).is_ok();
    }
    opened.into_iter().find(|(_, opens)| !opens).map(|(id, _)| id)
}

fn missing(keyring: &Keyring, uses: &[KeyUse]) -> Option<String> {
    let mut text = String::new();
    for KeyUse { key_id, data_keys, tenants } in uses.iter().filter(|used| !keyring.opens(&used.key_id)) {
        let what = if key_id == UNPROTECTED {
            "nothing encrypts"
        } else if text.is_empty() {
            "the keyring lacks the key"
        } else {
            "it lacks the key"
        };
        let separator = if text.is_empty() { "" } else { "; " };
        let _ = if key_id == UNPROTECTED {
            write!(
                text,
                "{separator}{what} {data_keys} data keys of {tenants} tenants, and this keyring takes encrypted ones only: set \
                 keyring.unprotected = true beside keyring.path, run `portero keyring rewrap`, then take the setting away"
            )
        } else {
            write!(
                text,
                "{separator}{what} {key_id}, which {data_keys} data keys of {tenants} tenants need: put it back, or their \
                 secrets and events cannot be read"
            )
        };
    }
    (!text.is_empty()).then_some(text)
}

/// Says what the gauge means, and sets it.
pub(super) fn tell(keyring: &Keyring) {
    describe_gauge!(
        UNPROTECTED_GAUGE,
        "1 where no keyring is configured: whoever reads the database reads all secrets and events."
    );
    gauge!(UNPROTECTED_GAUGE).set(f64::from(u8::from(keyring.is_unprotected())));
    if keyring.is_unprotected() {
        tracing::warn!(
            "keyring.unprotected: no keyring is used; whoever reads the database reads all secrets and events"
        );
    }
}

#[cfg(test)]
mod tests {
    use portero_types::{TenantId, TenantNo, Timestamp};

    use super::*;

    fn ring() -> Keyring {
        Keyring::generate(KeyId::new("v2").expect("valid"), [1; 32]).expect("made")
    }

    fn used(key_id: &str) -> KeyUse {
        KeyUse { key_id: key_id.to_owned(), data_keys: 7, tenants: 3 }
    }

    #[test]
    fn each_missing_key_is_named_with_what_needs_it() {
        assert_eq!(missing(&ring(), &[used("v2")]), None);
        let text = missing(&ring(), &[used("v0"), used("v1"), used("v2")]).expect("missing");
        assert!(
            text.contains("v0, which 7 data keys of 3 tenants") && text.contains("lacks the key v1"),
            "{text}"
        );
        assert!(!text.contains("v2"), "{text}");
    }

    #[test]
    fn another_key_of_the_same_name_is_noticed_unless_it_opens_something() {
        let stranger = Keyring::generate(KeyId::new("v2").expect("valid"), [2; 32]).expect("made");
        let wrapped = |ring: &Keyring| {
            let tenant = TenantId::new("acme").expect("valid");
            let key = ring.new_data_key(1, &tenant, [7; 32], [8; 12]);
            TenantKey { tenant_no: TenantNo(1), tenant, key, created_at: Timestamp::EPOCH }
        };
        assert_eq!(namesake(&ring(), &[]), None);
        assert_eq!(namesake(&ring(), &[wrapped(&ring())]), None);
        assert_eq!(namesake(&stranger, &[wrapped(&ring())]), Some("v2"));
        let damaged = [wrapped(&stranger), wrapped(&ring())];
        assert_eq!(namesake(&ring(), &damaged), None, "one tenant's damage stops nobody else");
    }

    #[test]
    fn open_data_keys_are_taken_only_when_told_so() {
        let text = missing(&ring(), &[used(UNPROTECTED)]).expect("refused");
        assert!(text.contains("keyring.unprotected = true") && text.contains("rewrap"), "{text}");
        assert_eq!(missing(&ring().taking_unprotected(), &[used(UNPROTECTED)]), None);
        assert_eq!(missing(&Keyring::unprotected(), &[used(UNPROTECTED)]), None);
        assert!(missing(&Keyring::unprotected(), &[used("v1")]).is_some());
    }

    #[test]
    fn without_a_keyring_it_says_how_to_make_one_and_how_to_go_without() {
        let section = KeyringSection { path: None, active: None, unprotected: false };
        let text = keyring(&section).expect_err("refused").to_string();
        assert!(text.contains("portero keyring generate") && text.contains("keyring.unprotected"), "{text}");
        assert!(keyring(&KeyringSection { unprotected: true, ..section }).expect("told so").is_unprotected());
    }
}
