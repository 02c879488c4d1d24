//! What makes signatures out of a secret's text.

use portero_types::{SecretNo, Timestamp};

use super::SignError;
use crate::algorithm::{Algorithm, Key, mac, sha256};
use crate::certificate::PrivateKey;
use crate::context::Context;
use crate::scheme::Proof;
use crate::secret::seed;
use crate::{Recipe, Secret};

/// What makes signatures.
pub(super) enum Signer {
    Shared(Algorithm, Key, String),
    Private(Algorithm, Box<PrivateKey>),
}

impl Signer {
    pub(super) fn new(
        recipe: &Recipe,
        proof: &Proof,
        scheme: usize,
        secret: &str,
    ) -> Result<Self, SignError> {
        let public = proof.reader.algorithms.iter().find(|(_, algorithm)| algorithm.is_public());
        if let Some((_, algorithm)) = public {
            if let Ok(key) = PrivateKey::from_pem(secret) {
                return Ok(Self::Private(*algorithm, Box::new(key)));
            }
            if let Some(seed) = proof.keys.iter().find_map(|form| seed(*form, secret)) {
                let key = ed25519_dalek::SigningKey::from_bytes(&seed);
                return Ok(Self::Private(Algorithm::Ed25519, Box::new(PrivateKey::Ed25519(Box::new(key)))));
            }
        }
        let secret = match Secret::new(recipe, SecretNo(0), secret, Timestamp::EPOCH, None) {
            Err(_) if public.is_some() => return Err(SignError::PrivateKeyNeeded),
            secret => secret?,
        };
        for key in secret.keys(scheme) {
            let fitting = proof.reader.algorithms.iter().find(|(_, algorithm)| key.fits(*algorithm));
            if let (Some((_, algorithm)), Key::Shared(_)) = (fitting, key) {
                let name = secret.name().unwrap_or_default().to_owned();
                return Ok(Self::Shared(*algorithm, key.clone(), name));
            }
        }
        Err(SignError::PrivateKeyNeeded)
    }

    /// The signature, written as the provider writes it.
    pub(super) fn sign(&self, proof: &Proof, context: Context<'_>, ts: &str) -> Result<String, SignError> {
        let shared = match self {
            Self::Shared(_, key, _) => key.shared(),
            Self::Private(..) => None,
        };
        let context = Context { secret: shared, ..context };
        let message = match &proof.message {
            Some(template) => context
                .fill(template)
                .map_err(|problem| SignError::Missing(problem.of_signed_part().detail().to_owned()))?,
            None => (&[][..]).into(),
        };
        let (algorithm, name, signature) = match self {
            Self::Private(algorithm, key) => {
                let pair = algorithm.key_pair().ok_or(SignError::PrivateKeyNeeded)?;
                (*algorithm, "", key.sign(pair, &message).ok_or(SignError::PrivateKeyNeeded)?)
            }
            Self::Shared(algorithm, key, name) => {
                let key = key.shared().unwrap_or_default();
                let signature = if algorithm.is_token() {
                    key.to_vec()
                } else if *algorithm == Algorithm::Sha256 {
                    sha256(&message)
                } else {
                    mac(*algorithm, key, &message)
                };
                (*algorithm, name.as_str(), signature)
            }
        };
        Ok(proof.reader.write(algorithm, name, &signature, ts))
    }
}
