//! A request as a curl command that a POSIX shell reads back byte by byte.

use super::request::Request;

/// Longest body that is written as one argument, bytes; Linux allows 128 KiB.
const ARGUMENT_BYTES_MAX: usize = 64 * 1024;

/// The command, with a line end. Its signature can be used by whoever reads it, within the provider's window.
pub(super) fn command(request: &Request) -> Vec<u8> {
    let mut lines = vec![format!("curl -sS -i -X POST {}", quoted(request.url.as_str()))];
    for (name, value) in &request.headers {
        // "name;" is how curl is told to send a header without a value.
        let header = if value.is_empty() { format!("{name};") } else { format!("{name}: {value}") };
        lines.push(format!("  -H {}", quoted(&header)));
    }
    if !request.headers.iter().any(|(name, _)| name == "content-type") {
        lines.push("  -H 'content-type: application/json'".to_owned());
    }
    let (before, data) = body(&request.body);
    lines.push(format!("  {data}"));
    format!("{before}{}\n", lines.join(" \\\n")).into_bytes()
}

/// What comes before the command, and curl's own argument.
fn body(body: &[u8]) -> (String, String) {
    match std::str::from_utf8(body) {
        // A leading '@' would name a file to --data-binary; --data-raw knows no files.
        Ok(text) if fits(text) && text.starts_with('@') => {
            (String::new(), format!("--data-raw {}", quoted(text)))
        }
        Ok(text) if fits(text) => (String::new(), format!("--data-binary {}", quoted(text))),
        _ => (format!("printf '{}' | \\\n", escaped(body)), "--data-binary @-".to_owned()),
    }
}

/// Whether a text survives as an argument and on a terminal.
fn fits(text: &str) -> bool {
    text.len() <= ARGUMENT_BYTES_MAX && !text.chars().any(|c| c.is_control() && c != '\n')
}

/// In single quotes, where a POSIX shell knows no special character but the quote itself.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// As a format of `printf`, in single quotes.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        match byte {
            b'%' => text.push_str("%%"),
            b'\\' => text.push_str(r"\\"),
            b' '..=b'~' if *byte != b'\'' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn request(value: &str, body: &[u8]) -> Request {
        Request {
            url: url::Url::parse("http://127.0.0.1:8080/in/1?a=b&c='d'").expect("a URL"),
            headers: vec![("x-sig".to_owned(), value.to_owned())],
            body: bytes::Bytes::copy_from_slice(body),
        }
    }

    /// Lets a real shell read the command, with a function in the place of curl that prints the body or the arguments.
    fn through_a_shell(request: &Request, curl: &str) -> Vec<u8> {
        let mut script = format!("curl() {{ {curl}; }}\n").into_bytes();
        script.extend(command(request));
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), script).expect("written");
        let output = Command::new("sh").arg(file.path()).stdin(Stdio::null()).output().expect("a shell");
        assert!(output.status.success());
        output.stdout
    }

    #[test]
    fn a_shell_reads_every_body_back_byte_by_byte() {
        // The last argument is the body, or '@-' when it is on standard input.
        let curl = r#"for last do :; done; if [ "$last" = "@-" ]; then cat; else printf '%s' "$last"; fi"#;
        let all: Vec<u8> = (0..=255).collect();
        let long = "x'y".repeat(30_000);
        let bodies: [&[u8]; 9] = [
            b"",
            br#"{"text":"it's $HOME `id` \"quoted\" \\ !"}"#,
            b"@/etc/passwd",
            b"line one\nline two\n\n",
            "{\"name\":\"B\u{e4}cker\"}".as_bytes(),
            b"nul \0 and 100% \\n",
            b"carriage\r\nreturn",
            &all,
            long.as_bytes(),
        ];
        for body in bodies {
            let read = through_a_shell(&request("1", body), curl);
            assert_eq!(read, body, "{:?}", String::from_utf8_lossy(&command(&request("1", body))));
        }
    }

    #[test]
    fn a_shell_reads_url_and_headers_back() {
        let printed = through_a_shell(&request("t=1,v1='a' $x", b"{}"), r#"printf '%s\n' "$@""#);
        let arguments = String::from_utf8(printed).expect("text");
        assert!(
            arguments.contains("\nhttp://127.0.0.1:8080/in/1?a=b&c=%27d%27\n") || arguments.contains("c='d'"),
            "{arguments}"
        );
        assert!(arguments.contains("\nx-sig: t=1,v1='a' $x\n"), "{arguments}");
        assert!(arguments.contains("\ncontent-type: application/json\n"), "{arguments}");
    }

    #[test]
    fn an_empty_header_is_sent_and_not_removed() {
        let text = String::from_utf8(command(&request("", b"{}"))).expect("text");
        assert!(text.contains("-H 'x-sig;'"), "{text}");
    }
}
