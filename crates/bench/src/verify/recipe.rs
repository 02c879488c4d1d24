//! A recipe, its secret, and requests signed for it.

use anyhow::Context as _;
use portero_recipe::{Recipe, Request, Secret, SignOptions, sign};
use portero_types::{SecretNo, Timestamp};

use super::{NOW, SECRET};
use crate::stripe::Events;

/// Algorithms beside HMAC-SHA-256, with their keys. The keys are for these measurements alone.
const PUBLIC_KEYS: [(&str, &str, &str); 3] = [
    ("ed25519", include_str!("../../data/ed25519.pem"), include_str!("../../data/ed25519.pub.pem")),
    ("ecdsa-p256-sha256", include_str!("../../data/p256.pem"), include_str!("../../data/p256.pub.pem")),
    ("rsa-sha256", include_str!("../../data/rsa.pem"), include_str!("../../data/rsa.pub.pem")),
];

/// A request ready to be judged.
pub(super) struct Signed {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A recipe with its requests.
pub(super) struct Receiver {
    pub(super) algorithm: &'static str,
    recipe: Recipe,
    secrets: [Secret; 1],
    pub(super) requests: Vec<Signed>,
}

/// One receiver for each algorithm: the same message, the same fields read; `macs` requests of an HMAC and `public` ones of
/// each algorithm that takes longer.
pub(super) fn receivers(body_bytes: usize, macs: u64, public: u64) -> anyhow::Result<Vec<Receiver>> {
    let mut receivers = vec![Receiver::new("hmac-sha256", "text", SECRET, SECRET, body_bytes, macs)?];
    for (algorithm, private_key, public_key) in PUBLIC_KEYS {
        receivers.push(Receiver::new(algorithm, "pem", private_key, public_key, body_bytes, public)?);
    }
    Ok(receivers)
}

impl Receiver {
    fn new(
        algorithm: &'static str,
        key_form: &str,
        signing: &str,
        verifying: &str,
        body_bytes: usize,
        count: u64,
    ) -> anyhow::Result<Self> {
        let recipe = serde_json::json!({
            "version": 1,
            "schemes": [{
                "signature": { "header": "X-Signature" },
                "algorithm": algorithm,
                "encoding": "base64",
                "keys": [key_form],
                "message": "{ts}.{body}",
                "time": { "source": "{header:X-Timestamp}", "unit": "s" },
                "id": ["{json:id}"],
                "type": ["{json:type}"],
                "entity": ["{json:data.object.id}"],
            }],
        });
        let recipe = Recipe::from_json(&recipe.to_string())?;
        let secrets = [Secret::new(&recipe, SecretNo(1), verifying, Timestamp::EPOCH, None)?];
        let events = Events::new(body_bytes, 0, count)?;
        let requests = (0..count).map(|n| {
            let mut body = Vec::with_capacity(events.bytes());
            events.write(n, &mut body);
            let options = SignOptions { now: Timestamp::from_secs(NOW), ..SignOptions::default() };
            let signed = sign(&recipe, signing, &body, options)?;
            let mut headers = vec![
                ("host".to_owned(), "gateway.example.com".to_owned()),
                ("user-agent".to_owned(), "Stripe/1.0 (+https://stripe.com/docs/webhooks)".to_owned()),
                ("content-type".to_owned(), "application/json; charset=utf-8".to_owned()),
            ];
            headers.extend(signed.headers);
            anyhow::Ok(Signed { headers, body: signed.body })
        });
        let requests: Vec<Signed> = requests.collect::<Result<_, _>>().context(algorithm)?;
        Ok(Self { algorithm, recipe, secrets, requests })
    }

    /// Whether the request verifies.
    pub(super) fn verifies(&self, signed: &Signed) -> bool {
        self.judge(signed, |_, _| true)
    }

    /// Whether it verifies and its id and entity are found.
    pub(super) fn extracts(&self, signed: &Signed) -> bool {
        self.judge(signed, |request, verified| {
            let events = portero_recipe::extract(&self.recipe, request, verified).unwrap_or_default();
            events.first().is_some_and(|event| !event.id_derived && event.entity.is_some())
        })
    }

    fn judge(
        &self,
        signed: &Signed,
        then: impl FnOnce(&Request<'_>, &portero_recipe::Verified) -> bool,
    ) -> bool {
        let headers: Vec<(&str, &[u8])> =
            signed.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let request = Request::new("POST", "", &headers, &signed.body);
        let now = Timestamp::from_secs(NOW);
        portero_recipe::verify(&self.recipe, &request, &self.secrets, now)
            .is_ok_and(|verified| then(&request, &verified))
    }
}
