//! Bounded reading of files that a command line names; '-' is standard input.

use std::io::{self, Read};
use std::path::Path;

use portero_types::Redacted;

use super::exit::Failure;

/// Longest secret, bytes, with room for white space around it.
const SECRET_BYTES_MAX: usize = 4096 + 1024;

/// Longest file of several secrets, bytes.
const SECRETS_BYTES_MAX: usize = 16 * SECRET_BYTES_MAX;

/// Reads at most `max` bytes. `what` names it in errors, such as "the body".
pub(crate) fn bytes(path: &Path, max: usize, what: &str) -> Result<Vec<u8>, Failure> {
    let is_stdin = path.as_os_str() == "-";
    let place = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
    let unreadable = |error: io::Error| {
        Failure::usage(format!("{what} cannot be read from {place}: {}", crate::file_error::words(&error)))
    };
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

/// Reads a secret: text, without the white space around it, and not empty. `what` names it in errors, such as "the secret".
pub(crate) fn secret(path: &Path, what: &str) -> Result<Redacted<String>, Failure> {
    let text = Redacted::new(text(path, SECRET_BYTES_MAX, what)?);
    let trimmed = text.expose_secret().trim();
    if trimmed.is_empty() {
        return Err(Failure::usage(format!("{what} in {} is empty", path.display())));
    }
    Ok(Redacted::new(trimmed.to_owned()))
}

/// Reads one or more secrets: each PEM block, or else each line that is not empty, is one.
pub(crate) fn secrets(path: &Path) -> Result<Vec<Redacted<String>>, Failure> {
    let text = Redacted::new(text(path, SECRETS_BYTES_MAX, "the secrets")?);
    let secrets = split_secrets(text.expose_secret());
    if secrets.is_empty() {
        return Err(Failure::usage(format!("{} holds no secret", path.display())));
    }
    Ok(secrets)
}

fn split_secrets(text: &str) -> Vec<Redacted<String>> {
    const END: &str = "-----END ";
    let is_pem = text.contains("-----BEGIN ");
    let mut secrets = Vec::new();
    let mut block = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        block.push_str(line);
        if !is_pem || line.starts_with(END) {
            secrets.push(Redacted::new(std::mem::take(&mut block)));
        } else {
            block.push('\n');
        }
    }
    if !block.is_empty() {
        secrets.push(Redacted::new(block));
    }
    secrets
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
        let value = secret(file(b" whsec_1\r\n").path(), "the secret").expect("a secret");
        assert_eq!(value.expose_secret(), "whsec_1");
        let empty = secret(file(b" \n").path(), "the secret").expect_err("empty").to_string();
        assert!(empty.starts_with("the secret in") && empty.ends_with("is empty"), "{empty}");
    }

    #[test]
    fn each_line_is_a_secret_and_each_pem_block_is_one() {
        let values = |content: &str| -> Vec<String> {
            let secrets = secrets(file(content.as_bytes()).path()).expect("secrets");
            secrets.iter().map(|secret| secret.expose_secret().clone()).collect()
        };
        assert_eq!(values("old\n\n new \r\n"), ["old", "new"]);
        let pem = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----";
        assert_eq!(values(&format!("{pem}\n\n{pem}\n")), [pem, pem]);
        assert!(secrets(file(b"\n \n").path()).is_err());
    }

    #[test]
    fn errors_name_the_file_and_never_its_content() {
        let missing =
            secret(Path::new("/nonexistent/secret"), "the secret").expect_err("missing").to_string();
        assert!(missing.contains("/nonexistent/secret"), "{missing}");
        let binary = secret(file(b"hush\xff").path(), "the secret").expect_err("not text").to_string();
        assert!(binary.contains("not UTF-8") && !binary.contains("hush"), "{binary}");
        let long = bytes(file(b"hush").path(), 3, "the body").expect_err("too long").to_string();
        assert!(long.contains("longer than 3 bytes") && !long.contains("hush"), "{long}");
    }
}
