//! Configuration: file, environment and flags, in rising order of precedence.
//!
//! One struct per section, defaults in one place, unknown keys refused, and all problems reported together. Tests inject
//! the environment as a map; only [`Sources::from_process`] reads the real one.

mod auth;
mod database;
mod edge;
mod grpc;
mod keyring;
mod limits;
mod management;
mod outbound;
mod reader;
mod redis;
mod rejections;
mod shutdown;
mod sources;
mod telemetry;
mod tls;
mod value;

pub(crate) use auth::{Auth, IssuerConfig, Jwks};
pub(crate) use database::{Database, DatabaseUrl, parse as parse_database_url};
pub(crate) use edge::EdgeSection;
pub(crate) use grpc::Grpc;
pub(crate) use keyring::KeyringSection;
pub(crate) use management::Management;
pub(crate) use outbound::Outbound;
pub(crate) use reader::{Problem, Problems, Reader};
pub(crate) use redis::Redis;
pub(crate) use rejections::Rejections;
pub(crate) use shutdown::Shutdown;
pub(crate) use sources::Sources;
pub(crate) use telemetry::{LogFormat, Telemetry};

use portero_ingress::LimitsConfig;

/// The commented default file: every key with its default, ready to be edited.
pub(crate) const DEFAULT_FILE: &str = include_str!("default.toml");

/// What a gateway process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Accepts webhooks over HTTP.
    Edge,
    /// Serves subscribers over gRPC.
    Stream,
    /// Serves the admin API over gRPC.
    Admin,
}

impl Role {
    /// As settings and replicas name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Stream => "stream",
            Self::Admin => "admin",
        }
    }
}

/// All settings of one gateway process.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// What it does; never empty.
    pub(crate) roles: Vec<Role>,
    /// Stable name of its place (host, pod): a restarted process takes over its predecessor's work at once.
    pub(crate) instance_id: String,
    pub(crate) edge: EdgeSection,
    pub(crate) limits: LimitsConfig,
    pub(crate) grpc: Grpc,
    pub(crate) management: Management,
    pub(crate) database: Database,
    pub(crate) redis: Redis,
    pub(crate) keyring: KeyringSection,
    pub(crate) auth: Auth,
    pub(crate) outbound: Outbound,
    pub(crate) rejections: Rejections,
    pub(crate) telemetry: Telemetry,
    pub(crate) shutdown: Shutdown,
}

impl Config {
    /// Reads all settings, or says everything that is wrong with them.
    pub(crate) fn load(sources: &Sources) -> Result<Self, Problems> {
        let (table, mut problems) = sources.merge();
        let mut root = Reader::new(table);
        let roles = root.list("roles", &["edge", "stream", "admin"]);
        let roles = parse_roles(&roles, &mut problems);
        let config = Self {
            roles,
            instance_id: root.text("instance_id", &sources.host_name()),
            edge: EdgeSection::read(&mut root.section("edge")),
            limits: limits::read(&mut root.section("limits")),
            grpc: Grpc::read(&mut root.section("grpc")),
            management: Management::read(&mut root.section("management")),
            database: Database::read(&mut root.section("database")),
            redis: Redis::read(&mut root.section("redis")),
            keyring: KeyringSection::read(&mut root.section("keyring")),
            auth: Auth::read(&mut root.section("auth")),
            outbound: Outbound::read(&mut root.section("outbound")),
            rejections: Rejections::read(&mut root.section("rejections")),
            telemetry: Telemetry::read(&mut root.section("telemetry")),
            shutdown: Shutdown::read(&mut root.section("shutdown")),
        };
        if config.instance_id.is_empty() || config.instance_id.len() > 128 {
            problems.push(Problem::new("instance_id", "must be 1 to 128 bytes"));
        }
        problems.extend(root.finish());
        if problems.is_empty() { Ok(config) } else { Err(Problems::new(problems)) }
    }

    /// Whether this process has a role.
    pub(crate) fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

fn parse_roles(names: &[String], problems: &mut Vec<Problem>) -> Vec<Role> {
    let mut roles = Vec::new();
    for name in names {
        match name.as_str() {
            "edge" => roles.push(Role::Edge),
            "stream" => roles.push(Role::Stream),
            "admin" => roles.push(Role::Admin),
            other => problems.push(Problem::new(
                "roles",
                format!("knows no role {other:?}; the roles are \"edge\", \"stream\" and \"admin\""),
            )),
        }
    }
    if names.is_empty() {
        problems.push(Problem::new("roles", "must name at least one of \"edge\", \"stream\" and \"admin\""));
    }
    roles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(file: &str, environment: &[(&str, &str)]) -> Sources {
        Sources::for_test(file, environment)
    }

    #[test]
    fn the_default_file_holds_exactly_the_defaults() {
        let from_file = Config::load(&sources(DEFAULT_FILE, &[])).expect("the default file is valid");
        let from_nothing = Config::load(&sources("", &[])).expect("defaults are valid");
        assert_eq!(format!("{from_file:?}"), format!("{from_nothing:?}"));
    }

    #[test]
    fn every_default_key_can_be_uncommented() {
        let uncommented: String = DEFAULT_FILE
            .lines()
            .map(|line| match line.strip_prefix("#= ") {
                Some(example) => format!("{example}\n"),
                None => format!("{line}\n"),
            })
            .collect();
        if let Err(problems) = Config::load(&sources(&uncommented, &[])) {
            panic!("{problems}");
        }
    }

    #[test]
    fn all_problems_are_reported_at_once_with_place_and_reason() {
        let text = "colour = 1\n[edge]\nlisten = \"nowhere\"\nbody_max = \"12 parsecs\"\nlissten = 1\n[grpc]\nlisten = 5\n\
                    [outbound]\nproxy = \"socks5://u:hunter2@proxy\"\ntimeout = \"1h\"\n[rejections]\nretention = \"1s\"";
        let problems = Config::load(&sources(text, &[("PORTERO__SHUTDOWN__DRAIN_DELAY", "soon")]))
            .expect_err("nine things are wrong")
            .to_string();
        for place in [
            "colour",
            "edge.listen",
            "edge.body_max",
            "edge.lissten",
            "grpc.listen",
            "outbound.proxy",
            "outbound.timeout",
            "rejections.retention",
            "shutdown.drain_delay",
        ] {
            assert!(problems.contains(place), "{place} is missing in:\n{problems}");
        }
        assert!(!problems.contains("hunter2"), "{problems}");
    }

    #[test]
    fn proxies_are_trusted_by_network_and_what_is_wrong_with_one_is_said() {
        let config = Config::load(&sources("[edge]\ntrusted_proxies = [\"10.0.0.0/8\", \"fd00::/8\"]", &[]));
        let proxies = config.expect("valid").edge.trusted_proxies;
        assert!(proxies.contain("10.9.9.9".parse().expect("an address")));
        let environment = [
            ("PORTERO__EDGE__TRUSTED_PROXIES", "10.1.0.0/8,0.0.0.0/0"),
            ("PORTERO__EDGE__FORWARDED_HEADER", "via"),
        ];
        let problems =
            Config::load(&sources("", &environment)).expect_err("three things are wrong").to_string();
        for words in ["did you mean 10.0.0.0/8?", "trust everybody", "edge.forwarded_header"] {
            assert!(problems.contains(words), "{words} is missing in:\n{problems}");
        }
    }

    #[test]
    fn flags_win_over_environment_and_environment_over_the_file() {
        let file = "[edge]\nlisten = \"127.0.0.1:1\"\n[grpc]\nlisten = \"127.0.0.1:2\"\n[management]\nlisten = \"127.0.0.1:3\"";
        let mut sources = sources(
            file,
            &[("PORTERO__GRPC__LISTEN", "127.0.0.1:22"), ("PORTERO__EDGE__LISTEN", "127.0.0.1:11")],
        );
        sources.set("edge.listen=127.0.0.1:111");
        let config = Config::load(&sources).expect("valid");
        assert_eq!(config.edge.listen.port(), 111);
        assert_eq!(config.grpc.listen.port(), 22);
        assert_eq!(config.management.listen.port(), 3);
    }

    #[test]
    fn an_environment_value_is_never_repeated_in_a_problem() {
        let problems = Config::load(&sources("", &[("PORTERO__DATABASE__URL", "mysql://u:hunter2@h/db")]))
            .expect_err("wrong scheme")
            .to_string();
        assert!(problems.contains("database.url") && !problems.contains("hunter2"), "{problems}");
    }
}
