//! The one table from errors to gRPC statuses. Nothing else in this crate makes a status for an error of a store.

use portero_store::ErrorKind;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// A field that breaks its rule; `rule` continues the sentence that begins with the field's name.
pub(crate) fn invalid(field: &str, rule: impl Into<String>) -> Status {
    let rule = rule.into();
    let details = ErrorDetails::with_bad_request_violation(field, rule.clone());
    Status::with_error_details(Code::InvalidArgument, format!("{field} {rule}"), details)
}

/// The most of a caller's own words that an answer repeats: statuses travel in headers, and clients bound those.
const ECHO_CHARACTERS_MAX: usize = 256;

/// A named resource that is not there.
pub(crate) fn not_found(name: &str) -> Status {
    match name.char_indices().nth(ECHO_CHARACTERS_MAX) {
        Some((end, _)) => Status::not_found(format!("{}… does not exist", &name[..end])),
        None => Status::not_found(format!("{name} does not exist")),
    }
}

/// A source whose recipe this version does not know or cannot read.
pub(crate) fn unusable_recipe() -> Status {
    Status::failed_precondition("the source's recipe cannot be used by this version")
}

/// A store's error as a caller sees it. The driver's words are logged here, once, and never sent.
pub(crate) fn from_store(error: &portero_store::Error) -> Status {
    let message = error.to_string();
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::OutcomeUnknown => {
            tracing::warn!(error = %message, cause = cause(error), "the store is away");
            Status::unavailable("the store is away; retry")
        }
        ErrorKind::Refused => Status::invalid_argument(message),
        ErrorKind::AlreadyExists => Status::already_exists(message),
        ErrorKind::NotFound => Status::not_found(message),
        ErrorKind::FailedPrecondition => Status::failed_precondition(message),
        ErrorKind::Exhausted => Status::resource_exhausted(message),
        ErrorKind::Fenced => Status::aborted("another gateway took over; reconnect"),
        ErrorKind::Corrupt | ErrorKind::SchemaMismatch => {
            tracing::error!(error = %message, cause = cause(error), "the store holds what it must not");
            Status::internal("the store holds something that this gateway cannot read; its log says what")
        }
    }
}

fn cause(error: &portero_store::Error) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_text_never_reaches_the_caller() {
        let error =
            portero_store::Error::with_source(ErrorKind::Unavailable, "no connection", "password=hunter2");
        assert!(!from_store(&error).message().contains("hunter2"));
    }

    #[test]
    fn a_bound_that_is_reached_is_told_with_the_stores_own_words() {
        let error =
            portero_store::Error::new(ErrorKind::Exhausted, "the tenant acme has 1000 grants: delete some");
        let status = from_store(&error);
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, error.to_string().as_str()));
    }

    #[test]
    fn a_name_that_is_not_there_is_repeated_up_to_a_bound() {
        assert_eq!(not_found("subscriptions/a").message(), "subscriptions/a does not exist");
        let long = not_found(&"é".repeat(100_000));
        assert_eq!(long.message(), format!("{}… does not exist", "é".repeat(ECHO_CHARACTERS_MAX)));
    }

    #[test]
    fn a_bad_field_is_named_in_the_details() {
        let status = invalid("tenant_id", "must be a slug");
        let details = status.get_error_details();
        assert_eq!(details.bad_request().expect("present").field_violations[0].field, "tenant_id");
    }
}
