//! Commands of an administrator, as a person types them.

use std::process::{Command, Output};
use std::sync::Arc;

use serde_json::Value;

use crate::harness::{Gateway, Site, output};

/// An administrator of everything at a gateway's gRPC port.
pub(crate) struct Operator {
    site: Arc<Site>,
    endpoint: String,
    token: String,
}

impl Operator {
    pub(crate) fn at(gateway: &Gateway) -> Self {
        let token = gateway.site.path("operator.token");
        std::fs::write(&token, gateway.site.admin_token()).expect("written");
        Self { site: Arc::clone(&gateway.site), endpoint: gateway.grpc_url(), token }
    }

    /// The program with these words and its answers as JSON, not started yet.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Site::program();
        command.current_dir(self.site.folder_path());
        let common = ["--output", "json", "--endpoint", &self.endpoint, "--token-file", &self.token];
        command.args(words).args(common);
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, words: &str) -> Output {
        output(&mut self.command(&words.split(' ').collect::<Vec<_>>()))
    }

    /// Runs a command that must succeed; its one line of JSON.
    pub(crate) fn json(&self, words: &str) -> Value {
        let output = self.run(words);
        assert!(output.status.success(), "{words}: {}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{words}: {}", said(&output)))
    }
}

/// All that a command said.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).expect("text")
}
