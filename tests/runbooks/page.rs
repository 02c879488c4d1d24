//! Reads the runbooks out of the page.

const PAGE: &str = include_str!("../../docs/security.md");

/// One runbook.
#[derive(Debug)]
pub(super) struct Runbook {
    pub(super) title: String,
    pub(super) steps: Vec<Step>,
}

/// What it asks for.
#[derive(Debug)]
pub(super) enum Step {
    /// A block of shell commands.
    Run(String),
    /// Something that no command of it does.
    Do(String),
    /// What is true now.
    See(String),
}

/// All runbooks, in the page's order.
pub(super) fn runbooks() -> Vec<Runbook> {
    let (_, runbooks) = PAGE.split_once("\n## Runbooks\n").expect("a chapter of runbooks");
    let runbooks = runbooks.split("\n## ").next().expect("a first part");
    runbooks.split("\n### ").skip(1).map(runbook).collect()
}

fn runbook(text: &str) -> Runbook {
    let (title, text) = text.split_once('\n').expect("a title's end");
    let (mut steps, mut block) = (Vec::new(), None::<String>);
    for line in text.lines() {
        match (&mut block, line) {
            (Some(_), "```") => steps.extend(block.take().map(Step::Run)),
            (Some(commands), _) => {
                commands.push_str(line);
                commands.push('\n');
            }
            (None, "```sh") => block = Some(String::new()),
            (None, _) if line.starts_with("```") => panic!("{title}: a block that is not sh: {line}"),
            (None, _) => steps.extend(hint(line)),
        }
    }
    assert!(block.is_none(), "{title}: a block without an end");
    Runbook { title: title.to_owned(), steps }
}

/// A line that says what to do or to see.
fn hint(line: &str) -> Option<Step> {
    let act = line.strip_prefix("**Do:** ").map(|what| Step::Do(what.to_owned()));
    act.or_else(|| line.strip_prefix("**See:** ").map(|what| Step::See(what.to_owned())))
}
