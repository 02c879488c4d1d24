//! The queue's worker, as a process of its own that ends when its work is done or its standard input ends.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::Take;
use crate::delivery::Window;
use crate::delivery::consumer::Progress;
use crate::delivery::order::Order;

/// How long a job is leased. As long as Portero's own limit.
const LEASE_SECS: i32 = 300;
/// How long a worker waits that found nothing to take.
const PAUSE: Duration = Duration::from_millis(5);
/// Most ids of one DELETE.
const DONE_MAX: usize = 1_000;

/// The first jobs of all entities that nobody has, oldest first.
macro_rules! heads {
    () => {
        "SELECT j.id FROM jobs j
         WHERE j.leased_until < now() AND j.id = (SELECT min(e.id) FROM jobs e WHERE e.entity = j.entity)
         ORDER BY j.id LIMIT $1 FOR UPDATE SKIP LOCKED"
    };
}

const LEASE: &str = concat!(
    "WITH taken AS MATERIALIZED (",
    heads!(),
    "), leased AS (
        UPDATE jobs SET leased_until = now() + make_interval(secs => $2), attempts = attempts + 1
        FROM taken WHERE jobs.id = taken.id RETURNING jobs.id
     )
     SELECT p.id, p.body FROM leased JOIN payloads p USING (id)"
);

const HOLD: &str = concat!(
    "WITH taken AS MATERIALIZED (",
    heads!(),
    ") SELECT p.id, p.body FROM taken JOIN payloads p USING (id)"
);

const DONE: &str = "DELETE FROM jobs WHERE id = ANY ($1)";

/// How to work.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// The queue's database.
    #[arg(long, value_name = "URL")]
    postgres_url: String,
    /// How a batch is taken.
    #[arg(long, value_enum)]
    take: Take,
    /// Stop when so many jobs are done.
    #[arg(long, value_name = "N")]
    events: u64,
    /// Entities that the jobs are about.
    #[arg(long, value_name = "N")]
    entities: u64,
    #[command(flatten)]
    window: Window,
    #[command(flatten)]
    tuning: Tuning,
}

/// What may be tuned for the machine.
#[derive(Args, Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Tuning {
    /// Jobs of a batch.
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub(crate) queue_batch: u32,
    /// Connections that take batches.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) queue_takers: u32,
    /// Connections that take one job at a time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) queue_singles: u32,
}

/// A job.
struct Job {
    id: i64,
    body: Vec<u8>,
}

struct Worker {
    options: Options,
    progress: Arc<Progress>,
    order: Order,
    /// Room for unfinished jobs.
    room: Semaphore,
}

/// Works and tells the result.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let progress = Progress::new(options.events);
    let worker = Arc::new(Worker {
        progress: Arc::clone(&progress),
        order: Order::new(options.entities)?,
        room: Semaphore::new(usize::try_from(options.window.inflight)?),
        options,
    });
    let mut tasks = JoinSet::new();
    match worker.options.take {
        Take::Lease => {
            let (taken, jobs) = mpsc::channel(1_024);
            let (ended, ids) = mpsc::unbounded_channel();
            for _ in 0..worker.options.tuning.queue_takers {
                tasks.spawn(lease(Arc::clone(&worker), taken.clone()));
            }
            tasks.spawn(handle(Arc::clone(&worker), jobs, ended));
            tasks.spawn(finish(Arc::clone(&worker), ids));
        }
        Take::Held => {
            for _ in 0..worker.options.tuning.queue_takers {
                tasks.spawn(hold(Arc::clone(&worker), worker.options.tuning.queue_batch));
            }
        }
        Take::One => {
            for _ in 0..worker.options.tuning.queue_singles {
                tasks.spawn(hold(Arc::clone(&worker), 1));
            }
        }
    }
    let by_second = tokio::select! {
        by_second = progress.follow(None) => by_second,
        failed = failure(&mut tasks) => return Err(failed),
    };
    progress.tell(by_second, worker.order.irregular())
}

/// The first error of a task.
async fn failure(tasks: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Error {
    loop {
        match tasks.join_next().await {
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => return error,
            Some(Err(error)) => return error.into(),
            None => std::future::pending().await,
        }
    }
}

impl Worker {
    async fn connect(&self) -> anyhow::Result<PgConnection> {
        PgConnection::connect(&self.options.postgres_url).await.context("reaching the queue's database")
    }

    fn is_enough(&self) -> bool {
        self.progress.enough().is_cancelled()
    }

    /// What the consumer does with an event: the same as Portero's does.
    async fn handle(&self, job: Job) -> i64 {
        self.order.note(u64::try_from(job.id).unwrap_or(0));
        std::future::ready(job.body.len()).await;
        job.id
    }
}

/// Takes jobs by leases, as long as there is room for more.
async fn lease(worker: Arc<Worker>, taken: mpsc::Sender<Vec<Job>>) -> anyhow::Result<()> {
    let mut connection = worker.connect().await?;
    let batch = worker.options.tuning.queue_batch.min(worker.options.window.inflight);
    while !worker.is_enough() {
        let room = worker.room.acquire_many(batch).await?;
        let query = sqlx::query(LEASE).bind(i64::from(batch)).bind(f64::from(LEASE_SECS));
        let jobs = jobs(query.fetch_all(&mut connection).await.context("taking jobs")?)?;
        let count = jobs.len();
        room.forget();
        worker.room.add_permits(usize::try_from(batch)?.saturating_sub(count));
        if jobs.is_empty() {
            tokio::time::sleep(PAUSE).await;
        } else if taken.send(jobs).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Handles what was taken, many at a time.
async fn handle(
    worker: Arc<Worker>,
    mut jobs: mpsc::Receiver<Vec<Job>>,
    ended: mpsc::UnboundedSender<i64>,
) -> anyhow::Result<()> {
    let concurrency = worker.options.window.concurrency();
    let mut running = FuturesUnordered::new();
    while let Some(batch) = jobs.recv().await {
        for job in batch {
            if running.len() >= concurrency
                && let Some(id) = running.next().await
                && ended.send(id).is_err()
            {
                return Ok(());
            }
            running.push(worker.handle(job));
        }
        while let Some(id) = running.next().await {
            if ended.send(id).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Deletes what is done, as much at a time as has gathered during the last commit.
async fn finish(worker: Arc<Worker>, mut ids: mpsc::UnboundedReceiver<i64>) -> anyhow::Result<()> {
    let mut connection = worker.connect().await?;
    let mut done = Vec::with_capacity(DONE_MAX);
    while ids.recv_many(&mut done, DONE_MAX).await > 0 {
        let count = done.len();
        sqlx::query(DONE).bind(&done).execute(&mut connection).await.context("deleting jobs")?;
        done.clear();
        worker.room.add_permits(count);
        worker.progress.record(count as u64);
    }
    Ok(())
}

/// Takes some jobs, handles and deletes them, in one transaction.
async fn hold(worker: Arc<Worker>, batch: u32) -> anyhow::Result<()> {
    let mut connection = worker.connect().await?;
    let concurrency = worker.options.window.concurrency();
    while !worker.is_enough() {
        let mut transaction = connection.begin().await?;
        let query = sqlx::query(HOLD).bind(i64::from(batch));
        let jobs = jobs(query.fetch_all(&mut *transaction).await.context("taking jobs")?)?;
        if jobs.is_empty() {
            transaction.rollback().await?;
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let handled = futures::stream::iter(jobs).map(|job| worker.handle(job)).buffer_unordered(concurrency);
        let done: Vec<i64> = handled.collect().await;
        sqlx::query(DONE).bind(&done).execute(&mut *transaction).await.context("deleting jobs")?;
        transaction.commit().await?;
        worker.progress.record(done.len() as u64);
    }
    Ok(())
}

fn jobs(rows: Vec<PgRow>) -> anyhow::Result<Vec<Job>> {
    rows.iter().map(|row| Ok(Job { id: row.try_get(0)?, body: row.try_get(1)? })).collect()
}
