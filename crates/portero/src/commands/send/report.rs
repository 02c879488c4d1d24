//! Shows answers as they come: a line each, or a summary when there are many.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::answer::Answer;
use crate::cli::Output;
use crate::commands::exit::Failure;
use crate::print;

/// More answers than this are summed up in text.
const LINES_MAX: u32 = 20;
/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// Most different labels that a summary tells apart.
const LABELS_MAX: usize = 50;

/// What came back so far.
pub(super) struct Report {
    output: Output,
    total: u32,
    began: Instant,
    told_at: Instant,
    done: u32,
    succeeded: u32,
    unanswered: u32,
    last_failure: Option<String>,
    labels: BTreeMap<String, u32>,
    durations_ms: Vec<f64>,
}

impl Report {
    /// Of `total` requests.
    pub(super) fn new(output: Output, total: u32) -> Self {
        let now = Instant::now();
        Self {
            output,
            total,
            began: now,
            told_at: now,
            done: 0,
            succeeded: 0,
            unanswered: 0,
            last_failure: None,
            labels: BTreeMap::new(),
            durations_ms: Vec::new(),
        }
    }

    /// Takes one answer, and shows it.
    pub(super) fn add(&mut self, answer: &Answer) -> anyhow::Result<()> {
        self.done += 1;
        self.succeeded += u32::from(answer.is_success());
        if answer.status.is_none() {
            self.unanswered += 1;
            self.last_failure.clone_from(&answer.message);
        }
        self.durations_ms.push(answer.duration_ms);
        let label = answer.label();
        let label = if self.labels.len() < LABELS_MAX { label } else { "others".to_owned() };
        *self.labels.entry(label).or_default() += 1;
        match self.output {
            Output::Json => print::json(answer)?,
            Output::Text if self.total <= LINES_MAX => print::line(&answer.line())?,
            Output::Text => {}
        }
        if self.total > LINES_MAX && self.told_at.elapsed() >= PROGRESS_EVERY {
            self.told_at = Instant::now();
            print::note(&format!("{} of {} answered", self.done, self.total));
        }
        Ok(())
    }

    /// Shows the summary; fails unless every answer was 2xx.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        if self.output == Output::Text && self.total > LINES_MAX {
            let summary = self.summary();
            print::raw(summary.as_bytes())?;
        }
        Ok(self.verdict()?)
    }

    fn summary(&mut self) -> String {
        let mut text: String =
            self.labels.iter().map(|(label, count)| format!("{count:>7}  {label}\n")).collect();
        self.durations_ms.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let last = self.durations_ms.len().saturating_sub(1);
            self.durations_ms.get(last * percent / 100).copied().unwrap_or_default()
        };
        let secs = self.began.elapsed().as_secs_f64();
        let (half, most) = (at(50), at(99));
        text.push_str(&format!(
            "{:>7}  in {secs:.1} s; half within {half:.1} ms, 99 % within {most:.1} ms\n",
            self.done
        ));
        text
    }

    fn verdict(&self) -> Result<(), Failure> {
        let failed = self.done - self.succeeded;
        if failed == 0 {
            return Ok(());
        }
        if self.unanswered == self.done {
            let why = self.last_failure.as_deref().unwrap_or("there was no answer");
            return Err(Failure::unavailable(why));
        }
        let message = if self.done == 1 {
            "the answer was not 2xx".to_owned()
        } else {
            format!("{failed} of {} requests were not answered with 2xx", self.done)
        };
        Err(Failure::failed(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::exit::Kind;
    use crate::commands::send::answer::Heads;

    const TOOK: Duration = Duration::from_millis(2);

    /// Many enough that nothing is printed.
    fn report(answers: &[Answer]) -> Report {
        let mut report = Report::new(Output::Text, 1_000);
        for answer in answers {
            report.add(answer).expect("shown");
        }
        report
    }

    fn answer(status: u16, outcome: &str) -> Answer {
        Answer::read(status, Heads::default(), format!(r#"{{"status":"{outcome}"}}"#).as_bytes(), TOOK)
    }

    #[test]
    fn the_summary_counts_by_outcome() {
        let mut report =
            report(&[answer(200, "duplicate"), answer(200, "accepted"), answer(200, "duplicate")]);
        let summary = report.summary();
        assert!(
            summary.starts_with("      1  200 accepted\n      2  200 duplicate\n      3  in "),
            "{summary}"
        );
        assert!(summary.contains("half within 2.0 ms"), "{summary}");
        assert_eq!(report.verdict(), Ok(()));
    }

    #[test]
    fn one_bad_answer_fails_the_command_and_silence_is_unavailable() {
        let mixed = report(&[answer(200, "accepted"), answer(401, "unauthorized")]).verdict();
        let mixed = mixed.expect_err("one failed");
        assert_eq!(
            (mixed.kind, mixed.to_string().as_str()),
            (Kind::Failed, "1 of 2 requests were not answered with 2xx")
        );
        let silent =
            report(&[Answer::none("nobody answers at http://x", TOOK)]).verdict().expect_err("silence");
        assert_eq!(
            (silent.kind, silent.to_string().as_str()),
            (Kind::Unavailable, "nobody answers at http://x")
        );
    }
}
