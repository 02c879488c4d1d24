//! Which of the active secrets a signature was made with.

use std::borrow::Cow;

use portero_types::SecretNo;
use subtle::ConstantTimeEq as _;

use super::attempt::Attempt;
use crate::algorithm::{Key, sha256};
use crate::context::{Context, Problem};
use crate::signature_list::Candidate;
use crate::template::Source;
use crate::url_form::urls;
use crate::{Reason, Rejection};

impl Attempt<'_> {
    /// Whether the digest that the signature covers is the body's. The signature is checked after it, in any case.
    pub(super) fn body_digest(&self, context: Context<'_>) -> Result<(), Rejection> {
        let Some((of, encoding)) = &self.proof.body_digest else { return Ok(()) };
        let text = context.fill(of).map_err(|problem| problem.of_signed_part())?;
        let claimed = encoding.decode(&text).unwrap_or_default();
        if bool::from(claimed.ct_eq(&sha256(self.request.body))) {
            return Ok(());
        }
        Err(Rejection::new(
            Reason::BodyDigestMismatch,
            "the digest that is signed is not that of the body received",
        ))
    }

    /// The first active secret under which one of the signatures is good, for any form of the URL.
    pub(super) fn matching(
        &self,
        candidates: &[Candidate],
        context: Context<'_>,
    ) -> Result<Option<SecretNo>, Rejection> {
        let Some(template) = &self.proof.message else {
            return self.matching_message(candidates, |_| Ok(Cow::Borrowed(&[])));
        };
        let urls = if template.uses(&Source::Url) {
            let urls = urls(self.request, &self.proof.urls);
            if urls.is_empty() {
                return Err(Problem::Missing(&Source::Url).of_signed_part());
            }
            urls
        } else {
            vec![Vec::new()]
        };
        let holds_secret = template.uses(&Source::Secret);
        for url in &urls {
            let context = Context { url: Some(url), ..context };
            let fill = |context: Context<'_>| {
                context.fill(template).map(Cow::into_owned).map_err(|problem| problem.of_signed_part())
            };
            let found = if holds_secret {
                self.matching_message(candidates, |key| {
                    fill(Context { secret: key.shared(), ..context }).map(Cow::Owned)
                })?
            } else {
                let message = context.fill(template).map_err(|problem| problem.of_signed_part())?;
                self.matching_message(candidates, |_| Ok(Cow::Borrowed(&*message)))?
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The first active secret under which one of the signatures of the message is good.
    fn matching_message<'m>(
        &self,
        candidates: &[Candidate],
        message: impl Fn(&Key) -> Result<Cow<'m, [u8]>, Rejection>,
    ) -> Result<Option<SecretNo>, Rejection> {
        for secret in self.active {
            let name = secret.name().map(str::as_bytes);
            for key in secret.keys(self.scheme_no) {
                let mut fitting =
                    self.proof.reader.distinct().filter(|algorithm| key.fits(*algorithm)).peekable();
                if fitting.peek().is_none() {
                    continue;
                }
                let message = message(key)?;
                if self.proof.answered.iter().any(|guard| guard.fits(&message)) {
                    // A handshake tells anybody the MAC of such a text.
                    continue;
                }
                let proves = fitting.any(|algorithm| {
                    // Where signatures name their keys, only those for this key count.
                    let mut claimed = (candidates.iter())
                        .filter(|claimed| claimed.algorithm == algorithm)
                        .filter(|claimed| claimed.name.as_deref().is_none_or(|have| Some(have) == name))
                        .peekable();
                    claimed.peek().is_some()
                        && key
                            .judge(algorithm, &message)
                            .is_some_and(|judge| claimed.any(|claimed| judge.accepts(&claimed.signature)))
                });
                if proves {
                    return Ok(Some(secret.no()));
                }
            }
        }
        Ok(None)
    }
}
