//! Bounded reading of files that a command line names; '-' is standard input.

use std::io::{self, Read};
use std::path::Path;

use portero_types::Redacted;

use super::exit::Failure;

/// Longest secret, bytes, with room for white space around it.
const SECRET_BYTES_MAX: usize = 4096 + 1024;

/// Reads at most `max` bytes. `what` names it in errors, such as "the body".
pub(crate) fn bytes(path: &Path, max: usize, what: &str) -> Result<Vec<u8>, Failure> {
    let is_stdin = path.as_os_str() == "-";
    let place = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
    let unreadable =
        |error: io::Error| Failure::usage(format!("{what} cannot be read from {place}: {}", error.kind()));
    let mut content = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    if is_stdin {
        io::stdin().lock().take(limit).read_to_end(&mut content).map_err(unreadable)?;
    } else {
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(limit).read_to_end(&mut content).map_err(unreadable)?;
    }
    if content.len() > max {
        return Err(Failure::usage(format!("{what} in {place} is longer than {max} bytes")));
    }
    Ok(content)
}

/// Reads UTF-8 text of at most `max` bytes.
pub(crate) fn text(path: &Path, max: usize, what: &str) -> Result<String, Failure> {
    String::from_utf8(bytes(path, max, what)?)
        .map_err(|_| Failure::usage(format!("{what} in {} is not UTF-8 text", path.display())))
}

/// Reads a secret: text, without the white space around it, and not empty.
pub(crate) fn secret(path: &Path) -> Result<Redacted<String>, Failure> {
    let text = Redacted::new(text(path, SECRET_BYTES_MAX, "the secret")?);
    let trimmed = text.expose_secret().trim();
    if trimmed.is_empty() {
        return Err(Failure::usage(format!("the secret in {} is empty", path.display())));
    }
    Ok(Redacted::new(trimmed.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), content).expect("written");
        file
    }

    #[test]
    fn a_secret_loses_its_line_end_and_must_hold_something() {
        let value = secret(file(b" whsec_1\r\n").path()).expect("a secret");
        assert_eq!(value.expose_secret(), "whsec_1");
        assert!(secret(file(b" \n").path()).expect_err("empty").to_string().ends_with("is empty"));
    }

    #[test]
    fn errors_name_the_file_and_never_its_content() {
        let missing = secret(Path::new("/nonexistent/secret")).expect_err("missing").to_string();
        assert!(missing.contains("/nonexistent/secret"), "{missing}");
        let binary = secret(file(b"hush\xff").path()).expect_err("not text").to_string();
        assert!(binary.contains("not UTF-8") && !binary.contains("hush"), "{binary}");
        let long = bytes(file(b"hush").path(), 3, "the body").expect_err("too long").to_string();
        assert!(long.contains("longer than 3 bytes") && !long.contains("hush"), "{long}");
    }
}
