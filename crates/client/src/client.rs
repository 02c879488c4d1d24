//! The entry: a configured client, its subscriptions and its admin service.

use std::future::Future;
use std::sync::Arc;

use portero_proto::v1;
use portero_proto::v1::admin_service_client::AdminServiceClient;
use portero_types::SubscriptionId;
use rand::rngs::{StdRng, SysRng};
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::auth::Authenticated;
use crate::backoff::Backoff;
use crate::batch::Batch;
use crate::config::ClientConfig;
use crate::delivery::Delivery;
use crate::driver::{COMMANDS_MAX, Driver, Stop};
use crate::error::Error;
use crate::held::Held;
use crate::late::Late;
use crate::link::Dialer;
use crate::options::SubscribeOptions;
use crate::outcome::Outcome;
use crate::queue::Queue;
use crate::runner;
use crate::subscription::{Settler, Subscription};
use crate::tls::Connector;
use crate::told::Told;

/// The protocol's version.
const PROTOCOL: u32 = 1;

/// The admin service with the client's token on each call; its methods are those of `portero.v1.AdminService`.
pub type Admin = AdminServiceClient<Authenticated>;

/// A gateway, as seen by one consumer or administrator. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    dialer: Dialer,
    instance_id: String,
    boot_id: String,
    admin: Admin,
}

impl Client {
    /// Checks the configuration and asks for a token once. It does not wait for the gateway: subscriptions connect, and go
    /// on trying, by themselves. Must be called within a Tokio runtime. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Config`] names the field; [`Error::Token`] when there is no token to send.
    pub async fn connect(config: ClientConfig) -> Result<Self, Error> {
        let (endpoint, connector) = config.check()?;
        config.token.get().await?;
        let decode_bytes_max = config.transport.decode_bytes_max;
        let channel = match connector.clone() {
            None => endpoint.connect_lazy(),
            Some(connector) => endpoint.connect_with_connector_lazy(connector),
        };
        let last_failure = connector.as_ref().map(Connector::last_failure).unwrap_or_default();
        let channel = Authenticated::new(channel, config.token.clone(), last_failure);
        let admin = AdminServiceClient::new(channel).max_decoding_message_size(decode_bytes_max);
        let mut rng = seeded()?;
        Ok(Self {
            dialer: Dialer { endpoint, connector, token: config.token, decode_bytes_max },
            instance_id: config
                .instance_id
                .unwrap_or_else(|| format!("anonymous-{:032x}", rng.random::<u128>())),
            boot_id: format!("{:032x}", rng.random::<u128>()),
            admin,
        })
    }

    /// The admin service, on a connection that all clones share and that opens with the first call.
    #[must_use]
    pub fn admin(&self) -> Admin {
        self.admin.clone()
    }

    /// Prepares to consume a subscription, named by its id (`billing`) or its resource name (`subscriptions/billing`). Each
    /// opened subscription has a connection of its own.
    #[must_use]
    pub fn subscribe(&self, name: &str, options: SubscribeOptions) -> Subscriber {
        Subscriber { client: self.clone(), name: name.to_owned(), options }
    }
}

/// A subscription that is not yet open.
#[derive(Clone, Debug)]
pub struct Subscriber {
    client: Client,
    name: String,
    options: SubscribeOptions,
}

impl Subscriber {
    /// Calls `handler` for each delivery, events of up to `concurrency` entities at a time, one event per entity, until the
    /// shutdown token is cancelled. A handler that panics gives [`Outcome::Retry`] with the code `HANDLER_PANICKED`.
    ///
    /// Broken connections are mended: handlers run on meanwhile, the next stream resumes their deliveries, and outcomes that
    /// were under way are settled first. What cannot be resumed, because the event went to somebody else or its lane is
    /// elsewhere, is told to its handler by [`Delivery::revoked`]; when such an event comes again while its handler still
    /// runs, it gets that handler's outcome instead of a second run. Two handlers never run for one entity. On shutdown
    /// running handlers may finish until `shutdown_deadline`; the rest is dropped and released uncounted.
    ///
    /// Not cancel safe: dropping it drops running handlers and outcomes not yet recorded, whose events then come again.
    ///
    /// # Errors
    /// [`Error::Config`]; or the gateway's refusal when trying again cannot help: an invalid argument, no such
    /// subscription, no permission, or a token that was refused and cannot be renewed. A client certificate that is refused is
    /// no such end: its files are read again for each attempt. [`Observer::failing`](crate::Observer::failing) tells of it.
    pub async fn run<H, F>(self, handler: H) -> Result<(), Error>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        let options = self.options.clone();
        let subscription = self.open()?;
        runner::run(subscription, options, handler).await
    }

    /// Opens the stream without a handler; `concurrency` and `shutdown_deadline` mean nothing here. Connects in the
    /// background: errors come out of [`Subscription::next`]. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::Config`] names the option.
    pub fn open(self) -> Result<Subscription, Error> {
        self.options.check()?;
        let Self { client, name, options } = self;
        let id = name.strip_prefix("subscriptions/").unwrap_or(&name);
        if SubscriptionId::new(id).is_err() {
            return Err(Error::Config {
                field: "subscription",
                rule: "a subscription's id or resource name",
            });
        }
        let hello = v1::Hello {
            subscription: format!("subscriptions/{id}"),
            instance_id: client.instance_id,
            boot_id: client.boot_id,
            protocol: PROTOCOL,
            flow: None,
            max_message_bytes: u32::try_from(client.dialer.decode_bytes_max).unwrap_or(u32::MAX),
            unsettled_tokens: Vec::new(),
        };
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let queue = Queue::default();
        let settler = Settler { commands: sender.clone() };
        let driver = Driver {
            connect: Arc::new(client.dialer),
            hello,
            flow: options.flow(),
            observer: options.observer,
            queue: queue.clone(),
            commands,
            sender,
            rng: seeded()?,
            batch: Batch::default(),
            late: Late::default(),
            held: Held::default(),
            backoff: Backoff::default(),
            told: Told::default(),
            stop: Stop::No,
            former: None,
        };
        let driver = Some(AbortOnDropHandle::new(tokio::spawn(driver.run())));
        Ok(Subscription { queue, settler, shutdown: options.shutdown, driver })
    }
}

/// Randomness for identities and jitter.
fn seeded() -> Result<StdRng, Error> {
    StdRng::try_from_rng(&mut SysRng)
        .map_err(|_| Error::Config { field: "the operating system", rule: "a source of randomness" })
}
