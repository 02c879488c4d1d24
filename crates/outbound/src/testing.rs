//! A fetcher whose answers tests write down.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use portero_types::SourceNo;
use tokio::sync::Semaphore;

use crate::{Fetch, FetchError};

/// Answers what was written down, and `answer` to everything else.
#[derive(Debug)]
pub struct Scripted {
    answers: Mutex<HashMap<String, Result<Bytes, FetchError>>>,
    asked: Mutex<Vec<String>>,
    gate: Semaphore,
}

/// A GET whose answer may be kept for an hour.
#[must_use]
pub fn wanted(url: &str) -> portero_recipe::Fetch {
    portero_recipe::Fetch {
        url: url.to_owned(),
        post_json: None,
        cache_key: url.to_owned(),
        cache_for: Duration::from_secs(3600),
    }
}

impl Scripted {
    /// One that answers at once.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::gated(Semaphore::MAX_PERMITS / 2)
    }

    /// One that answers so many and lets the others wait.
    #[must_use]
    pub fn gated(answers: usize) -> Arc<Self> {
        let gate = Semaphore::new(answers);
        Arc::new(Self { answers: Mutex::default(), asked: Mutex::default(), gate })
    }

    /// Lets all wait from now on.
    pub fn shut(&self) {
        self.gate.forget_permits(usize::MAX);
    }

    /// Lets so many more through.
    pub fn open(&self, answers: usize) {
        self.gate.add_permits(answers);
    }

    /// Writes down the answer for a URL.
    pub fn answer(&self, url: &str, answer: Result<&str, FetchError>) {
        let answer = answer.map(|text| Bytes::from(text.to_owned()));
        locked(&self.answers).insert(url.to_owned(), answer);
    }

    /// The URLs that were asked for, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        locked(&self.asked).clone()
    }

    /// How many were asked for.
    #[must_use]
    pub fn count(&self) -> usize {
        locked(&self.asked).len()
    }

    /// Waits until so many were asked for.
    pub async fn until_in_flight(&self, count: usize) {
        while self.count() < count {
            tokio::task::yield_now().await;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Fetch for Scripted {
    async fn fetch(&self, wanted: &portero_recipe::Fetch, _: SourceNo) -> Result<Bytes, FetchError> {
        locked(&self.asked).push(wanted.url.clone());
        if let Ok(permit) = self.gate.acquire().await {
            permit.forget();
        }
        let known = locked(&self.answers).get(&wanted.url).cloned();
        known.unwrap_or(Ok(Bytes::from_static(b"answer")))
    }
}
