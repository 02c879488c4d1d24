//! Says on standard error how the stream fares.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portero_client::{Disconnect, Error, Observer};

use crate::commands::connection::of_client;
use crate::commands::present::clean;
use crate::print;

/// Notes about one subscription.
pub(super) struct Notes {
    subscription: String,
    origin: String,
    is_broken: AtomicBool,
}

impl Notes {
    pub(super) fn new(subscription: &str, origin: &str) -> Self {
        Self {
            subscription: subscription.to_owned(),
            origin: origin.to_owned(),
            is_broken: AtomicBool::new(false),
        }
    }
}

impl Observer for Notes {
    fn connected(&self, _stream_id: &str, _generation: i64, _assigned_lanes: u32) {
        let again = if self.is_broken.swap(false, Ordering::Relaxed) { " again" } else { "" };
        let (subscription, origin) = (clean(&self.subscription), &self.origin);
        print::note(&format!("following {subscription} at {origin}{again}; Ctrl-C stops"));
    }

    fn disconnected(&self, why: &Disconnect<'_>, next_attempt_in: Option<Duration>) {
        // An error that ends the command is told by the command.
        if next_attempt_in.is_none() {
            return;
        }
        self.is_broken.store(true, Ordering::Relaxed);
        if matches!(why, Disconnect::Drained) {
            print::note(&format!("the gateway at {} is going away; trying again", self.origin));
        }
    }

    // Once for each reason, not for each attempt.
    fn failing(&self, why: &Error) {
        print::note(&format!("{}; trying again", of_client(why, &self.origin)));
    }
}
