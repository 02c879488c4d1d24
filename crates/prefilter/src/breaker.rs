//! Decides whether Redis is asked at all. Closed: it is asked, failures in a row are counted. Open: it is skipped, until a
//! probe outside of any request succeeds.

use std::sync::Mutex;
use std::sync::PoisonError;

/// Failures in a row after which Redis is skipped. Requests in flight may each wait for one time-out more.
pub(crate) const FAILURES_MAX: u32 = 5;

#[derive(Default)]
pub(crate) struct Breaker(Mutex<State>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open,
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Breaker {
    pub(crate) fn is_open(&self) -> bool {
        matches!(*self.state(), State::Open)
    }

    /// A call succeeded. A late success of a call from before does not close it; only [`Self::close`] does.
    pub(crate) fn succeeded(&self) {
        let mut state = self.state();
        if *state != State::Open {
            *state = State::default();
        }
    }

    /// A call failed. True when this one opened it.
    pub(crate) fn failed(&self) -> bool {
        let mut state = self.state();
        match *state {
            State::Open => false,
            State::Closed { failures } if failures + 1 >= FAILURES_MAX => {
                *state = State::Open;
                true
            }
            State::Closed { failures } => {
                *state = State::Closed { failures: failures + 1 };
                false
            }
        }
    }

    /// A probe succeeded. True when it was open.
    pub(crate) fn close(&self) -> bool {
        let was_open = self.is_open();
        *self.state() = State::default();
        was_open
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_says_so_once() {
        let breaker = Breaker::default();
        for _ in 1..FAILURES_MAX {
            assert!(!breaker.failed());
        }
        breaker.succeeded();
        for _ in 1..FAILURES_MAX {
            assert!(!breaker.failed());
            assert!(!breaker.is_open());
        }
        assert!(breaker.failed());
        assert!(breaker.is_open());
        assert!(!breaker.failed(), "it was open already");
    }

    #[test]
    fn only_a_probe_closes_it() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES_MAX {
            breaker.failed();
        }
        breaker.succeeded();
        assert!(breaker.is_open());
        assert!(breaker.close());
        assert!(!breaker.is_open());
        assert!(!breaker.close(), "it was closed already");
    }
}
