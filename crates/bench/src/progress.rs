//! What is told while something is measured, on standard error: the report alone goes to standard output.

use std::io::Write as _;

/// One line.
pub(crate) fn say(line: &str) {
    // Whoever closed standard error does not want it.
    let _ = writeln!(std::io::stderr(), "{line}");
}
