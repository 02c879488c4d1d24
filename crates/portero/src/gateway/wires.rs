//! What is said at the start of connections to other machines that verify nothing.

use std::net::IpAddr;

use super::store::{read_secret_file, unverified_database_host};
use crate::config::{Config, Redis};

/// Warns, once, of each server behind that this process reaches over a network without knowing who answers.
pub(crate) fn warn_of_unverified(config: &Config) {
    if let Some(host) = unverified_database_host(&config.database).filter(|host| !is_this_machine(host)) {
        tracing::warn!(
            database.host = host,
            "the database is on another machine, and its certificate is not verified: whoever is between can read and change \
             what passes. Set database.ca_file, or sslmode=verify-full in its URL"
        );
    }
    if let Some(host) = plain_redis_host(&config.redis).filter(|host| !is_this_machine(host)) {
        tracing::warn!(
            redis.host = host,
            "Redis is on another machine and is not reached by TLS: whoever is between can read its password and have \
             events taken for duplicates. Use a URL that begins with rediss://"
        );
    }
}

fn plain_redis_host(section: &Redis) -> Option<String> {
    let url = match (&section.url, &section.url_file) {
        (Some(url), _) => url.clone(),
        (None, Some(file)) => read_secret_file(file).ok()?,
        (None, None) => return None,
    };
    let url = url::Url::parse(url.expose_secret()).ok()?;
    (url.scheme() == "redis").then(|| url.host_str().unwrap_or("localhost").to_owned())
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::Sources;
    use super::*;

    fn hosts(settings: &str) -> [Option<String>; 2] {
        let config = Config::load(&Sources::for_test(settings, &[])).expect("valid");
        [unverified_database_host(&config.database), plain_redis_host(&config.redis)]
    }

    #[test]
    fn this_machine_is_known_by_its_names_and_addresses() {
        for host in
            ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]", "::ffff:127.0.0.1"]
        {
            assert!(is_this_machine(host), "{host}");
        }
        for host in
            ["db.example", "10.0.0.1", "[2001:db8::1]", "localhost.example", "notlocalhost", "0.0.0.0"]
        {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn servers_are_unverified_until_tls_says_who_they_are() {
        let open =
            "[database]\nhost = \"db.example\"\n[redis]\nurl = \"redis://:hunter2@cache.example:6379\"\n";
        assert_eq!(hosts(open), [Some("db.example".to_owned()), Some("cache.example".to_owned())]);
        let closed =
            "[database]\nhost = \"db.example\"\nca_file = \"c\"\n[redis]\nurl = \"rediss://cache.example\"\n";
        assert_eq!(hosts(closed), [None, None]);
        assert_eq!(hosts("[database]\nurl = \"sqlite:/var/lib/portero\"\n"), [None, None]);
    }

    #[test]
    fn urls_from_files_are_looked_at_too() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().display();
        std::fs::write(file.path(), "postgres://p:hunter2@db.example/d?sslmode=require\n").expect("written");
        let settings = format!("[database]\nurl_file = \"{path}\"\n");
        assert_eq!(hosts(&settings), [Some("db.example".to_owned()), None]);
        std::fs::write(file.path(), "redis://cache.example").expect("written");
        let settings = format!("[database]\nhost = \"localhost\"\n[redis]\nurl_file = \"{path}\"\n");
        assert_eq!(hosts(&settings)[1].as_deref(), Some("cache.example"));
    }
}
