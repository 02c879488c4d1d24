//! `SubscriberService`: streams of deliveries and their settlements.

mod convert;
mod service;
mod session;
mod standing;
mod token;

pub(crate) use service::Subscriber;
