//! What is written when the program meets a mistake of its own: where, and only words that stand in the source.
//!
//! The message of a panic is often made at run time, from the very values that the code did not expect: a slice of a payload, the
//! text of an error. Those stay unsaid; the place is enough to find the cause.

use std::any::Any;

const UNSAID: &str = "(its words were made at run time and stay unsaid)";

/// Makes panics of this process one line of its log.
pub(super) fn log_them() {
    std::panic::set_hook(Box::new(|info| {
        let location = info.location().map_or_else(String::new, ToString::to_string);
        let thread = std::thread::current();
        tracing::error!(
            location,
            thread = thread.name().unwrap_or_default(),
            reason = fixed_words(info.payload()),
            "a mistake in the program: a task panicked"
        );
    }));
}

/// The words of a panic that are the same whatever it met.
fn fixed_words(payload: &(dyn Any + Send)) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or(UNSAID)
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn words_of_the_source_are_said_and_values_are_not() {
        let fixed = catch_unwind(|| panic!("a lane without an owner")).expect_err("it panics");
        assert_eq!(fixed_words(&*fixed), "a lane without an owner");
        let payload = "hunter2\u{e9}".to_owned();
        for mistake in [
            catch_unwind(|| panic!("no field in {payload}")),
            catch_unwind(|| drop(payload[..8].to_owned())),
            catch_unwind(|| {
                payload.parse::<u8>().map_err(|_| payload.clone()).expect("a number");
            }),
        ] {
            assert_eq!(fixed_words(&*mistake.expect_err("it panics")), UNSAID);
        }
    }
}
