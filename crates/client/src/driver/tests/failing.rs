//! What is told of an outage while the subscription tries again.

use super::*;
use crate::TlsFailure;

/// Counts attempts that failed, and keeps the reasons that are for people.
#[derive(Default)]
struct Heard {
    attempts: Mutex<usize>,
    reasons: Mutex<Vec<String>>,
}

impl Heard {
    fn take(&self) -> (usize, Vec<String>) {
        let attempts = std::mem::take(&mut *self.attempts.lock().expect("not poisoned"));
        (attempts, std::mem::take(&mut *self.reasons.lock().expect("not poisoned")))
    }
}

impl Observer for Heard {
    fn disconnected(&self, _why: &Disconnect<'_>, _next_attempt_in: Option<Duration>) {
        *self.attempts.lock().expect("not poisoned") += 1;
    }

    fn failing(&self, why: &Error) {
        self.reasons.lock().expect("not poisoned").push(why.to_string());
    }
}

fn drain() -> subscribe_response::Frame {
    subscribe_response::Frame::Drain(v1::Drain::default())
}

fn refusal() -> Error {
    Error::Tls(TlsFailure::CertificateRefused)
}

fn away() -> Error {
    tonic::Status::unavailable("away").into()
}

#[tokio::test(start_paused = true)]
async fn each_reason_of_an_outage_is_told_once_and_again_in_the_next_one() {
    let (arrivals, receiver) = mpsc::unbounded_channel();
    let refusals = Arc::new(Mutex::new(VecDeque::new()));
    let line = Line { arrivals, can_renew: false, failures: Arc::default(), refusals: Arc::clone(&refusals) };
    let heard = Arc::new(Heard::default());
    let _subscription = start_on(line, Arc::clone(&heard) as Arc<dyn Observer>);
    let mut gateway = Gateway { arrivals: receiver };

    // A client whose certificate is revoked is asked to leave, and then not let in again.
    let stream = gateway.welcomed().await;
    let next = [refusal(), refusal(), away(), refusal(), away()];
    refusals.lock().expect("not poisoned").extend(next);
    stream.send(drain());
    let stream = gateway.welcomed().await;
    let (attempts, reasons) = heard.take();
    assert_eq!(attempts, 6, "each attempt, and the stream that ended as asked");
    assert_eq!(reasons, [refusal().to_string(), away().to_string()]);

    refusals.lock().expect("not poisoned").push_back(refusal());
    stream.send(drain());
    gateway.welcomed().await;
    assert_eq!(heard.take(), (2, vec![refusal().to_string()]), "a stream was open in between");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_ends_the_subscription_is_no_attempt_to_be_told_of() {
    let (arrivals, _gateway) = mpsc::unbounded_channel();
    let refusals = Arc::new(Mutex::new(VecDeque::from([tonic::Status::not_found("none").into()])));
    let line = Line { arrivals, can_renew: false, failures: Arc::default(), refusals };
    let heard = Arc::new(Heard::default());
    let mut subscription = start_on(line, Arc::clone(&heard) as Arc<dyn Observer>);
    assert_eq!(subscription.next().await.expect_err("ended").kind(), crate::ErrorKind::NotFound);
    assert_eq!(heard.take(), (1, Vec::new()));
}
