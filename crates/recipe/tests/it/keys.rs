//! Secrets for signing and verifying, one pair for each recipe.

use portero_recipe::{Recipe, generate_secret};

const RSA: [&str; 2] = [include_str!("keys/rsa.private.pem"), include_str!("keys/rsa.public.pem")];
const P256: [&str; 2] = [include_str!("keys/p256.private.pem"), include_str!("keys/p256.public.pem")];

/// What the sender signs with, and what the receiver has. `None` where only the provider itself can sign.
pub(crate) fn pair(json: &str, recipe: &Recipe) -> Option<(String, String)> {
    let has = |word: &str| json.contains(&format!("\"{word}\""));
    let pem = |[private, public]: [&str; 2]| {
        let base64: String = public.lines().filter(|line| !line.starts_with("---")).collect();
        (private.to_owned(), if has("spki") { base64 } else { public.to_owned() })
    };
    if ["paypal", "aws-sns", "plaid"].into_iter().any(has) {
        return None;
    }
    Some(if has("rsa-sha256") {
        pem(RSA)
    } else if has("ecdsa-p256-sha256") {
        pem(P256)
    } else if has("named_sha1") {
        let secret = "publickey1|a private key of the tests".to_owned();
        (secret.clone(), secret)
    } else if has("basic") {
        let secret = "user:a password of the tests".to_owned();
        (secret.clone(), secret)
    } else {
        let public = generate_secret(recipe, [7; 32])?;
        let only_public = has("ed25519") && !has("hmac-sha256");
        (if only_public { "07".repeat(32) } else { public.clone() }, public)
    })
}
