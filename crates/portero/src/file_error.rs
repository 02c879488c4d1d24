//! Why a file cannot be read or written, in words that show nothing of what is in it.

use std::io::{Error, ErrorKind};

/// What went wrong.
pub(crate) fn words(error: &Error) -> String {
    // The standard library's own words for this kind speak of an "entity".
    if error.kind() == ErrorKind::NotFound {
        "there is no such file".to_owned()
    } else {
        error.kind().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_called_so_and_nothing_else_of_an_error_is_shown() {
        let missing = std::fs::read("/nonexistent/file").expect_err("missing");
        assert_eq!(words(&missing), "there is no such file");
        assert_eq!(words(&Error::new(ErrorKind::InvalidData, "whsec_1234")), "invalid data");
    }
}
