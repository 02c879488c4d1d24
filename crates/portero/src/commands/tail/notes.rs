//! Says on standard error how the stream fares.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portero_client::{Disconnect, Observer};

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
        // Told once for each outage, not for each attempt.
        if !self.is_broken.swap(true, Ordering::Relaxed) {
            let why = match why {
                Disconnect::Failed(error) => of_client(error, &self.origin).to_string(),
                Disconnect::Drained => format!("the gateway at {} is going away", self.origin),
                Disconnect::Closed | _ => return,
            };
            print::note(&format!("{why}; trying again"));
        }
    }
}
