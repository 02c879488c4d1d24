//! Which reasons of an outage were told already, so that a log says each once and not at each attempt.

use crate::error::Error;

/// Reasons that are kept in one outage; what comes after them is not told until a stream opens.
const REASONS_MAX: usize = 16;

/// The reasons since a stream last opened.
#[derive(Debug, Default)]
pub(crate) struct Told {
    reasons: Vec<String>,
}

impl Told {
    /// Whether this reason is to be told: the first time that it comes. An outage may go back and forth between two.
    pub(crate) fn is_new(&mut self, error: &Error) -> bool {
        let reason = error.to_string();
        if self.reasons.len() >= REASONS_MAX || self.reasons.contains(&reason) {
            return false;
        }
        self.reasons.push(reason);
        true
    }

    /// A stream opened: what comes next is another outage.
    pub(crate) fn begin_anew(&mut self) {
        self.reasons.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::TlsFailure;

    #[test]
    fn a_reason_is_told_once_in_an_outage_however_often_it_comes_back() {
        let mut told = Told::default();
        let refused = || Error::Tls(TlsFailure::CertificateRefused);
        assert!(told.is_new(&Error::Silent) && told.is_new(&refused()));
        assert!(!told.is_new(&Error::Silent) && !told.is_new(&refused()));
        assert!(told.is_new(&Error::Tls(TlsFailure::Expired)), "another failure of the same kind");
        told.begin_anew();
        assert!(told.is_new(&refused()));
    }

    #[test]
    fn a_gateway_that_answers_differently_each_time_does_not_fill_the_log() {
        let mut told = Told::default();
        let answers = (0..1_000).map(|n| Error::from(tonic::Status::unavailable(format!("request {n}"))));
        assert_eq!(answers.filter(|error| told.is_new(error)).count(), REASONS_MAX);
    }
}
