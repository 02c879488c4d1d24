//! What the fuzzers in `fuzz/` run. Hidden, and only there with the feature `fuzzing` or in tests, which run everything
//! in `fuzz/seeds` and `fuzz/findings` through the same functions.
//!
//! Each takes any bytes and panics when something that must hold does not.

mod readers;
mod requests;

pub use readers::{forms, json, signatures, times, xml};
pub use requests::{recipes, requests};

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Runs every kept input of a target.
    fn replay(target: &str, run: fn(&[u8])) {
        let mut count = 0;
        for kind in ["seeds", "findings"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(kind).join(target);
            let Ok(files) = std::fs::read_dir(&folder) else { continue };
            for file in files {
                run(&std::fs::read(file.expect("an entry").path()).expect("readable"));
                count += 1;
            }
        }
        assert!(count > 0, "{target} has no seeds");
    }

    #[test]
    fn kept_signature_lists_are_read() {
        replay("signatures", super::signatures);
    }

    #[test]
    fn kept_times_are_read() {
        replay("times", super::times);
    }

    #[test]
    fn kept_forms_are_read() {
        replay("forms", super::forms);
    }

    #[test]
    fn kept_json_is_read() {
        replay("json", super::json);
    }

    #[test]
    fn kept_xml_is_read() {
        replay("xml", super::xml);
    }

    #[test]
    fn kept_recipes_are_judged() {
        replay("recipes", super::recipes);
    }

    #[test]
    fn kept_requests_are_judged() {
        replay("requests", super::requests);
    }
}
