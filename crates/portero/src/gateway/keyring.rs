//! The keyring at start: read, and fit for what the database holds.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use metrics::{describe_gauge, gauge};
use portero_keyring::{KeyId, Keyring, UNPROTECTED};
use portero_store::{DynStore, KeyUse, Replica, TenantKey};

use crate::config::KeyringSection;

/// Data keys that are read at a time.
const PAGE: u32 = 1_000;
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
    if let Some(active) = active.as_deref().filter(|active| *active != ring.active().as_str()) {
        bail!(
            "keyring.active is {active:?}, and the keyring file says that {} is active: take the setting away, or use \
             `portero keyring activate`",
            ring.active()
        );
    }
    Ok(if *unprotected { ring.taking_unprotected() } else { ring })
}

/// Refuses a keyring that lacks a key which data keys in the database need, or has another one under its name.
pub(super) async fn require_every_key(keyring: &Keyring, store: &DynStore) -> anyhow::Result<()> {
    let uses = store.key_uses().await.context("the data keys cannot be read")?;
    if let Some(text) = missing(keyring, &uses) {
        bail!(text);
    }
    require_no_namesake(keyring, store).await
}

/// Refuses a keyring of which a key opens none of the data keys that are wrapped under its name. One that opens some is the
/// right one, whatever became of the others.
pub(crate) async fn require_no_namesake(keyring: &Keyring, store: &DynStore) -> anyhow::Result<()> {
    let uses = store.key_uses().await.context("the data keys cannot be read")?;
    let mut names: BTreeMap<String, Proof> = uses
        .into_iter()
        .filter(|used| keyring.opens(&used.key_id))
        .map(|used| (used.key_id, Proof::None))
        .collect();
    let mut after = None;
    while names.values().any(|proof| *proof != Proof::Opens) {
        let page = store.keys_not_under("", after, PAGE).await.context("the data keys cannot be read")?;
        let Some(last) = page.last() else { break };
        after = Some((last.tenant_no, last.key.version));
        try_each(keyring, &page, &mut names);
    }
    match names.into_iter().find(|(_, proof)| *proof == Proof::Fails) {
        None => Ok(()),
        Some((id, _)) => bail!(
            "the keyring's key {id} opens nothing that was wrapped under a key of that name: is it the keyring of another \
             installation? Nothing was done"
        ),
    }
}

/// What is known of a key of the keyring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Nothing: what was wrapped under it is gone by now.
    None,
    /// It opens something.
    Opens,
    /// It opened nothing yet of what is said to be wrapped under it.
    Fails,
}

fn try_each(keyring: &Keyring, wrapped: &[TenantKey], names: &mut BTreeMap<String, Proof>) {
    for TenantKey { tenant, key, .. } in wrapped {
        if let Some(proof) = names.get_mut(&key.key_id).filter(|proof| **proof != Proof::Opens) {
            *proof = if keyring.unwrap(key, tenant).is_ok() { Proof::Opens } else { Proof::Fails };
        }
    }
}

/// Refuses a keyring with another key than a gateway that runs has under the same name: what the one wraps the other could not
/// open. `instance` is this gateway's own name, under which one that was killed may still be known.
pub(super) async fn require_the_others_key(
    keyring: &Keyring,
    store: &DynStore,
    instance: &str,
) -> anyhow::Result<()> {
    let replicas = store.replicas().await.context("the gateways that run cannot be read")?;
    match others_key(keyring, &replicas, instance) {
        None => Ok(()),
        Some((other, id)) => bail!(
            "the gateway {other} runs with another key {id} than this keyring has: a key is made once, and its file copied to \
             every gateway. Put the right file here, or there; a gateway that was killed counts for a minute. Nothing was started"
        ),
    }
}

/// A gateway that runs with another key under a name of the keyring, and the name.
fn others_key(keyring: &Keyring, replicas: &[Replica], instance: &str) -> Option<(String, KeyId)> {
    replicas.iter().filter(|replica| replica.live && replica.instance != instance).find_map(|replica| {
        let id = KeyId::new(name_in(&replica.key_id)).ok()?;
        let mine = keyring.mark_of(&id)?;
        (mine != replica.key_id).then(|| (replica.instance.clone(), id))
    })
}

/// The name of the key in what a gateway reports of it.
pub(crate) fn name_in(mark: &str) -> &str {
    mark.split_once('/').map_or(mark, |(name, _)| name)
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
    use portero_store::Revision;
    use portero_types::{ReplicaId, TenantId, TenantNo, Timestamp};

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
        let proof = |ring: &Keyring, wrapped: &[TenantKey]| {
            let mut names = BTreeMap::from([("v2".to_owned(), Proof::None)]);
            try_each(ring, wrapped, &mut names);
            names["v2"]
        };
        assert_eq!(proof(&ring(), &[]), Proof::None);
        assert_eq!(proof(&ring(), &[wrapped(&ring())]), Proof::Opens);
        assert_eq!(proof(&stranger, &[wrapped(&ring())]), Proof::Fails);
        let damaged = [wrapped(&stranger), wrapped(&ring()), wrapped(&stranger)];
        assert_eq!(proof(&ring(), &damaged), Proof::Opens, "one tenant's damage stops nobody else");
    }

    #[test]
    fn a_gateway_with_another_key_of_the_same_name_is_noticed_before_anything_is_wrapped_under_it() {
        let v2 = |byte| Keyring::generate(KeyId::new("v2").expect("valid"), [byte; 32]).expect("made");
        let replica = |instance: &str, key_id: String, live| Replica {
            id: ReplicaId::new(Timestamp::EPOCH, 1),
            instance: instance.to_owned(),
            roles: Vec::new(),
            version: String::new(),
            key_id,
            revision: Revision(1),
            started_at: Timestamp::EPOCH,
            seen_at: Timestamp::EPOCH,
            skew_micros: 0,
            live,
        };
        let mut knows = v2(1);
        knows.add(KeyId::new("v3").expect("valid"), [3; 32]).expect("added");
        let told = |key: &Keyring, live| others_key(&knows, &[replica("b", key.active_mark(), live)], "a");
        assert_eq!(told(&v2(1), true), None);
        assert_eq!(told(&v2(2), true).map(|(instance, _)| instance).as_deref(), Some("b"));
        assert_eq!(told(&v2(2), false), None, "it is gone");
        let v3 = Keyring::generate(KeyId::new("v3").expect("valid"), [4; 32]).expect("made");
        assert!(told(&v3, true).is_some(), "one that is not active yet");
        let v9 = Keyring::generate(KeyId::new("v9").expect("valid"), [9; 32]).expect("made");
        assert_eq!(told(&v9, true), None, "of a key that is not here nothing is known");
        assert_eq!(told(&Keyring::unprotected(), true), None);
        let own = replica("a", v2(2).active_mark(), true);
        assert_eq!(others_key(&knows, &[own], "a"), None, "what ran here before");
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
    fn a_setting_that_names_another_active_key_than_the_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keyring.json");
        ring().create(&path).expect("made");
        let section = |active: Option<&str>| KeyringSection {
            path: Some(path.clone()),
            active: active.map(str::to_owned),
            unprotected: false,
        };
        for good in [None, Some("v2")] {
            assert_eq!(keyring(&section(good)).expect("loaded").active().as_str(), "v2");
        }
        let text = keyring(&section(Some("v3"))).expect_err("refused").to_string();
        assert!(text.contains("\"v3\"") && text.contains("v2 is active"), "{text}");
    }

    #[test]
    fn without_a_keyring_it_says_how_to_make_one_and_how_to_go_without() {
        let section = KeyringSection { path: None, active: None, unprotected: false };
        let text = keyring(&section).expect_err("refused").to_string();
        assert!(text.contains("portero keyring generate") && text.contains("keyring.unprotected"), "{text}");
        assert!(keyring(&KeyringSection { unprotected: true, ..section }).expect("told so").is_unprotected());
    }
}
