//! `portero demo`: the payment laboratory. A fictional provider sends nine deliveries for five orders to a naive receiver
//! and to Portero, and the books of both are compared with the provider's own.
//!
//! Everything is real but the provider: a gateway in this process with a database in a temporary folder, HTTP, the admin
//! API, the gRPC stream, and a consumer whose ledger is a database of its own. Three days pass by moving the gateway's
//! clock.

mod check;
mod consumer;
mod naive_endpoint;
mod pagora;
mod play;
mod report;
mod setup;
mod stage;
mod text;
mod wire;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use portero_client::{Client, ClientConfig, Token};
use portero_example_ledger::{Ledger, scenario};
use tokio::time::Instant;

use self::consumer::Consumer;
use self::naive_endpoint::NaiveEndpoint;
use self::pagora::Pagora;
use self::play::{Play, Receivers};
use self::report::Report;
use self::stage::Stage;
use crate::cli::{DemoArgs, Output};
use crate::clock::SystemClock;
use crate::commands::exit::Failure;
use crate::commands::stop::Stop;
use crate::print;

/// Everything but the cleaning up is done by then; it takes a second or two.
const DEADLINE: Duration = Duration::from_secs(45);
/// How long the gateway may take to stop.
const CLOSE: Duration = Duration::from_secs(10);

/// Succeeds when Portero's books agree with the provider's, and everything else went as the scenario says.
pub(crate) async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("portero-demo-")
        .tempdir()
        .context("a temporary folder cannot be made")?;
    let result = Box::pin(laboratory(folder.path(), args.verbose)).await;
    if folder.close().is_err() {
        print::note("the temporary folder of the demo could not be removed");
    }
    let report = result?;
    match args.output.output {
        Output::Json => print::json(&report)?,
        Output::Text => print::raw(text::render(&report).as_bytes())?,
    }
    if report.clean {
        Ok(())
    } else {
        let why = "not everything went as it should; --verbose shows the gateway's log";
        Err(Failure::failed(why).into())
    }
}

/// Builds the stage, plays the scenario on it, and takes it down again, whatever happened.
async fn laboratory(folder: &Path, verbose: bool) -> anyhow::Result<Report> {
    let deadline = Instant::now() + DEADLINE;
    let mut stop = Stop::listen()?;
    let clock = SystemClock::default();
    let building = Box::pin(Stage::build(folder, &clock, verbose));
    let stage = bounded(deadline, &mut stop, building).await?;
    let result = tokio::select! {
        result = bounded(deadline, &mut stop, Box::pin(experiment(&stage, folder, &clock))) => result,
        error = stage.gateway.failed() => Err(error),
    };
    if tokio::time::timeout(CLOSE, stage.gateway.stop()).await.is_err() {
        print::note("the gateway of the demo did not stop in time");
    }
    result
}

async fn bounded<T>(
    deadline: Instant,
    stop: &mut Stop,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    tokio::select! {
        result = tokio::time::timeout_at(deadline, work) => result.unwrap_or_else(|_| {
            let seconds = DEADLINE.as_secs();
            let why = format!("the demo was not done after {seconds} seconds; --verbose shows the gateway's log");
            Err(Failure::failed(why).into())
        }),
        () = stop.wanted() => Err(Failure::failed("stopped before the end").into()),
    }
}

async fn experiment(stage: &Stage, folder: &Path, clock: &SystemClock) -> anyhow::Result<Report> {
    let source = setup::source_and_subscription(&client(stage, &stage.admin_token).await?).await?;
    let ledger = Ledger::open(&folder.join("ledger.db")).await.context("the ledger cannot be opened")?;
    ledger.open_orders(scenario::orders()).await.context("the ledger refuses the orders")?;
    let mut consumer = Consumer::start(&client(stage, &stage.consumer_token).await?, &ledger);
    let naive = NaiveEndpoint::start().await?;
    let play = Play {
        pagora: Pagora::new(source.secret, clock.clone())?,
        clock: clock.clone(),
        receivers: Receivers {
            portero: format!("{}{}", stage.edge_url, source.ingest_path),
            naive: naive.url.clone(),
        },
        consumer: &mut consumer,
    };
    let sent = play.perform().await?;
    let trails = consumer.stop().await?;
    let accounts = ledger.accounts().await.context("the ledger cannot be read")?;
    ledger.close().await;
    Ok(Report::new(sent, trails, &naive.accounts(), &accounts))
}

async fn client(stage: &Stage, token: &str) -> anyhow::Result<Client> {
    let mut config = ClientConfig::new(stage.grpc_url.clone());
    config.token = Token::fixed(token);
    Ok(Client::connect(config).await?)
}
