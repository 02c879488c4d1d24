//! How an explanation looks, whether it was made here or by a gateway.

use portero_client::v1;
use portero_recipe::{Explanation, Extracted, Outcome, Step};
use serde::Serialize;

use super::exit::Failure;
use super::present::{clean, pairs};
use crate::cli::Output;
use crate::print;

/// What became of a request, and why. Its serialised form is what `--output json` promises.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    verdict: Verdict,
    /// The stable code of a refusal.
    reason: Option<String>,
    detail: Option<String>,
    /// The secret that matched.
    secret: Option<String>,
    /// The status of the answer to a handshake.
    handshake_status: Option<u32>,
    /// Whether the handshake brings the source's secret, which it may only while the source waits for one.
    stores_secret: bool,
    /// What would have to be fetched first.
    unfetched_url: Option<String>,
    steps: Vec<StepView>,
    events: Vec<EventView>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Verified,
    Handshake,
    Refused,
    /// Something must be fetched first.
    Undecided,
}

#[derive(Clone, Debug, Serialize)]
struct StepView {
    name: String,
    outcome: &'static str,
    detail: String,
    secret: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct EventView {
    event_id: String,
    event_id_derived: bool,
    event_id_anomaly: Option<String>,
    event_type: String,
    entity: Option<String>,
    account: Option<String>,
}

impl View {
    /// Of an explanation made here.
    pub(crate) fn new(explanation: &Explanation) -> Self {
        let mut view = Self {
            verdict: Verdict::Verified,
            reason: None,
            detail: None,
            secret: None,
            handshake_status: None,
            stores_secret: false,
            unfetched_url: None,
            steps: explanation.steps.iter().map(StepView::from).collect(),
            events: explanation.events.iter().map(EventView::from).collect(),
        };
        match (&explanation.verdict, explanation.unfetched.clone()) {
            (portero_recipe::Verdict::Verified { secret }, _) => {
                view.secret = secret.map(|no| no.0.to_string());
            }
            (portero_recipe::Verdict::Handshake { status, stores_secret }, _) => {
                view.verdict = Verdict::Handshake;
                view.handshake_status = Some((*status).into());
                view.stores_secret = *stores_secret;
            }
            (portero_recipe::Verdict::Refused(_), Some(url)) => {
                view.verdict = Verdict::Undecided;
                view.unfetched_url = Some(url);
            }
            (portero_recipe::Verdict::Refused(rejection), None) => {
                view.verdict = Verdict::Refused;
                view.reason = Some(rejection.reason().code().to_owned());
                view.detail = Some(rejection.detail().to_owned());
            }
        }
        view
    }

    /// Shows it. Fails when the request is not accepted.
    pub(crate) fn show(&self, output: Output) -> anyhow::Result<()> {
        match output {
            Output::Text => print::raw(self.text().as_bytes())?,
            Output::Json => print::json(self)?,
        }
        Ok(self.outcome()?)
    }

    /// Whether it is accepted.
    fn outcome(&self) -> Result<(), Failure> {
        match self.verdict {
            Verdict::Verified | Verdict::Handshake => Ok(()),
            Verdict::Refused => {
                let reason = self.reason.as_deref().unwrap_or_default();
                Err(Failure::failed(format!("the request is refused ({reason})")))
            }
            Verdict::Undecided => Err(Failure::failed("nothing is decided before that is fetched")),
        }
    }

    /// The steps aligned, the events, and last the verdict.
    pub(crate) fn text(&self) -> String {
        let names: Vec<String> = self.steps.iter().map(StepView::title).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for (step, name) in self.steps.iter().zip(&names) {
            let mark = match step.outcome {
                PASSED => '✓',
                FAILED => '✗',
                _ => '·',
            };
            text.push_str(&format!("{mark} {:width$}  {}\n", clean(name), clean(&step.detail)));
        }
        for (n, event) in self.events.iter().enumerate() {
            text.push_str(&format!("\nevent {} of {}\n", n + 1, self.events.len()));
            text.push_str(&pairs(&event.details()));
        }
        text.push_str(&format!("\n{}\n", clean(&self.last_line())));
        text
    }

    fn last_line(&self) -> String {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        match (self.verdict, &self.secret) {
            (Verdict::Verified, Some(secret)) => format!("✓ verified by secret {secret}"),
            (Verdict::Verified, None) => "✓ accepted".to_owned(),
            (Verdict::Handshake, _) => {
                let status = self.handshake_status.unwrap_or_default();
                let only = if self.stores_secret { " while the source waits for its secret" } else { "" };
                format!("✓ a handshake, answered with {status}{only}")
            }
            (Verdict::Refused, _) => format!("✗ refused, {}: {}", text(&self.reason), text(&self.detail)),
            (Verdict::Undecided, _) => {
                format!("· undecided: the gateway would first fetch {}", text(&self.unfetched_url))
            }
        }
    }
}

const PASSED: &str = "passed";
const FAILED: &str = "failed";
const NOTED: &str = "noted";

impl StepView {
    fn title(&self) -> String {
        self.secret.as_ref().map_or_else(|| self.name.clone(), |secret| format!("{} {secret}", self.name))
    }
}

impl EventView {
    fn details(&self) -> Vec<(&'static str, String)> {
        let derived = match (self.event_id_derived, &self.event_id_anomaly) {
            (true, Some(anomaly)) => format!(" (derived: the id sent is not trusted, {anomaly})"),
            (true, None) => " (derived: none was sent)".to_owned(),
            (false, _) => String::new(),
        };
        vec![
            ("  id", format!("{}{derived}", self.event_id)),
            ("  type", self.event_type.clone()),
            ("  entity", self.entity.clone().unwrap_or_default()),
            ("  account", self.account.clone().unwrap_or_default()),
        ]
    }
}

impl From<&Step> for StepView {
    fn from(step: &Step) -> Self {
        let outcome = match step.outcome {
            Outcome::Passed => PASSED,
            Outcome::Failed => FAILED,
            Outcome::Noted => NOTED,
        };
        Self {
            name: step.name.to_owned(),
            outcome,
            detail: step.detail.clone(),
            secret: step.secret.map(|no| no.0.to_string()),
        }
    }
}

impl From<&Extracted> for EventView {
    fn from(event: &Extracted) -> Self {
        Self {
            event_id: event.event_id.clone(),
            event_id_derived: event.id_derived,
            event_id_anomaly: event.id_anomaly.map(|anomaly| anomaly.code().to_owned()),
            event_type: event.event_type.clone(),
            entity: event.entity.clone(),
            account: event.account.clone(),
        }
    }
}

/// A text that is empty where there is none.
fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

impl From<v1::Explanation> for View {
    fn from(explanation: v1::Explanation) -> Self {
        let verdict = match explanation.verdict() {
            v1::Verdict::Verified => Verdict::Verified,
            v1::Verdict::Handshake => Verdict::Handshake,
            v1::Verdict::Refused => Verdict::Refused,
            v1::Verdict::Undecided | v1::Verdict::Unspecified => Verdict::Undecided,
        };
        Self {
            verdict,
            reason: some(explanation.reason),
            detail: some(explanation.detail),
            secret: some(explanation.secret),
            handshake_status: (verdict == Verdict::Handshake).then_some(explanation.handshake_status),
            stores_secret: explanation.stores_secret,
            unfetched_url: some(explanation.unfetched_url),
            steps: explanation.steps.into_iter().map(StepView::from).collect(),
            events: explanation.events.into_iter().map(EventView::from).collect(),
        }
    }
}

impl From<v1::ExplanationStep> for StepView {
    fn from(step: v1::ExplanationStep) -> Self {
        let outcome = match step.outcome() {
            v1::StepOutcome::Passed => PASSED,
            v1::StepOutcome::Failed => FAILED,
            v1::StepOutcome::Noted | v1::StepOutcome::Unspecified => NOTED,
        };
        Self { name: step.name, outcome, detail: step.detail, secret: some(step.secret) }
    }
}

impl From<v1::ExplainedEvent> for EventView {
    fn from(event: v1::ExplainedEvent) -> Self {
        Self {
            event_id: event.event_id,
            event_id_derived: event.event_id_derived,
            event_id_anomaly: some(event.event_id_anomaly),
            event_type: event.event_type,
            entity: some(event.ordering_key),
            account: some(event.account),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> v1::Explanation {
        let step = |name: &str, outcome: v1::StepOutcome, secret: &str| v1::ExplanationStep {
            name: name.to_owned(),
            outcome: outcome.into(),
            detail: format!("about {name}"),
            secret: secret.to_owned(),
        };
        v1::Explanation {
            verdict: v1::Verdict::Refused.into(),
            reason: "SIGNATURE_MISMATCH".to_owned(),
            detail: "it does not\u{1b}[2J match".to_owned(),
            steps: vec![
                step("body", v1::StepOutcome::Noted, ""),
                step("signature", v1::StepOutcome::Passed, ""),
                step("secret", v1::StepOutcome::Failed, "s1"),
            ],
            ..v1::Explanation::default()
        }
    }

    #[test]
    fn a_gateways_explanation_is_shown_aligned_and_cannot_command_the_terminal() {
        let text = View::from(answer()).text();
        let wanted = "· body       about body\n✓ signature  about signature\n✗ secret s1  about secret\n\n\
                      ✗ refused, SIGNATURE_MISMATCH: it does not\\u{1b}[2J match\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn the_json_form_is_stable() {
        let json = serde_json::to_value(View::from(answer())).expect("serialises");
        assert_eq!(json["verdict"], "refused");
        assert_eq!(json["steps"][2]["outcome"], "failed");
        let mut keys: Vec<&String> = json.as_object().expect("an object").keys().collect();
        keys.sort();
        let wanted = [
            "detail",
            "events",
            "handshake_status",
            "reason",
            "secret",
            "steps",
            "stores_secret",
            "unfetched_url",
            "verdict",
        ];
        assert_eq!(keys, wanted);
    }

    #[test]
    fn what_is_not_accepted_is_no_success() {
        for (verdict, is_success) in [
            (v1::Verdict::Verified, true),
            (v1::Verdict::Handshake, true),
            (v1::Verdict::Refused, false),
            (v1::Verdict::Undecided, false),
        ] {
            let view = View::from(v1::Explanation { verdict: verdict.into(), ..v1::Explanation::default() });
            assert_eq!(view.outcome().is_ok(), is_success, "{verdict:?}");
        }
    }
}
