//! The ledger in SQLite: each event in one transaction with its inbox.

use std::path::Path;
use std::str::FromStr as _;
use std::time::Duration;

use portero_client::inbox::{self, Once, once};
use portero_client::{Delivery, Outcome};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Row as _, Sqlite, SqlitePool, Transaction};

use crate::account::{Account, Accounts, effect};
use crate::event::{Malformed, OrderId, PaymentEvent};
use crate::money::Cents;
use crate::transition::{Refusal, State};

/// The name under which events are noted in the inbox.
const CONSUMER: &str = "ledger";
/// Connections to a ledger in a file; one of them writes at a time.
const CONNECTIONS_MAX: u32 = 4;
/// How long a writer waits for another.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// A transaction that writes says so at once, so that it waits for others instead of failing half-way.
const BEGIN: &str = "BEGIN IMMEDIATE";

const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS orders (
        order_id TEXT PRIMARY KEY,
        amount_cents INTEGER NOT NULL CHECK (amount_cents > 0),
        state TEXT NOT NULL CHECK (state IN ('open', 'paid', 'refunded')),
        credited_cents INTEGER NOT NULL,
        CHECK (credited_cents = CASE state WHEN 'paid' THEN amount_cents ELSE 0 END)
    ) STRICT",
    // One line per applied event, never changed.
    "CREATE TABLE IF NOT EXISTS entries (
        event_id TEXT PRIMARY KEY,
        order_id TEXT NOT NULL REFERENCES orders,
        kind TEXT NOT NULL,
        credit_cents INTEGER NOT NULL,
        receipt_id TEXT NOT NULL
    ) STRICT",
];

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is in the books now, and its order stands so.
    Now(Account),
    /// It was in the books already.
    Before,
}

/// Why an event is not in the books.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No event of the provider.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The transition table refuses it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database refused.
    #[error("the ledger's database refused")]
    Database(#[from] sqlx::Error),
    /// The inbox could not answer.
    #[error(transparent)]
    Inbox(#[from] inbox::Error),
    /// A row that this version did not write.
    #[error("order {0} has a state that this version does not know")]
    CorruptOrder(OrderId),
}

/// The ledger. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    pool: SqlitePool,
}

impl Ledger {
    /// Opens a ledger in a file, and creates it when it is missing. Commits are on disk before they are acknowledged.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn open(path: &Path) -> Result<Self, Error> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT);
        Self::with(SqlitePoolOptions::new().max_connections(CONNECTIONS_MAX).connect_with(options).await?)
            .await
    }

    /// A ledger that lives as long as this process.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn in_memory() -> Result<Self, Error> {
        let options = SqliteConnectOptions::from_str("sqlite::memory:")?.foreign_keys(true);
        // Each connection would be a database of its own, and a closed one would take it along.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options)
            .await?;
        Self::with(pool).await
    }

    async fn with(pool: SqlitePool) -> Result<Self, Error> {
        let mut tx = pool.begin_with(BEGIN).await?;
        inbox::create_tables(&mut tx).await?;
        for table in TABLES {
            sqlx::query(table).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(Self { pool })
    }

    /// Enters orders of the shop that wait for their payments; those that are there already stay as they are.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn open_orders(&self, orders: impl IntoIterator<Item = (OrderId, Cents)>) -> Result<(), Error> {
        let mut tx = self.pool.begin_with(BEGIN).await?;
        for (order, amount) in orders {
            sqlx::query("INSERT INTO orders VALUES ($1, $2, 'open', 0) ON CONFLICT DO NOTHING")
                .bind(order.0)
                .bind(amount.0)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// The handler for `Subscriber::run`: applies a delivery and says what became of it. Applied or known: ack. Too early:
    /// defer. Malformed or never right: reject. The database refuses: retry.
    pub async fn handle(&self, delivery: Delivery) -> Outcome {
        match self.apply(&delivery).await {
            Ok(_) => Outcome::Ack,
            Err(Error::Malformed(error)) => Outcome::reject("MALFORMED", error.to_string()),
            Err(Error::Refused(refusal @ Refusal::TooEarly { .. })) => {
                Outcome::defer(refusal.code(), refusal.to_string())
            }
            Err(Error::Refused(refusal @ (Refusal::Invalid { .. } | Refusal::WrongAmount { .. }))) => {
                Outcome::reject(refusal.code(), refusal.to_string())
            }
            Err(error @ (Error::Database(_) | Error::Inbox(_) | Error::CorruptOrder(_))) => {
                tracing::warn!(receipt.id = delivery.receipt_id(), error = %error, "event not applied");
                Outcome::retry("LEDGER", error.to_string())
            }
        }
    }

    /// Applies a delivery in one transaction with its inbox. On every error the books and the inbox are unchanged.
    /// Cancel safe: a dropped transaction is rolled back.
    ///
    /// # Errors
    /// Every [`Error`].
    pub async fn apply(&self, delivery: &Delivery) -> Result<Applied, Error> {
        let event = PaymentEvent::from_json(delivery.body())?;
        let mut tx = self.pool.begin_with(BEGIN).await?;
        if once(&mut tx, CONSUMER, delivery).await? == Once::Seen {
            tx.rollback().await?;
            return Ok(Applied::Before);
        }
        let account = Account::after(account(&mut tx, &event.order_id).await?, &event)?;
        write(&mut tx, &event, account, delivery.receipt_id()).await?;
        tx.commit().await?;
        Ok(Applied::Now(account))
    }

    /// All accounts.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::CorruptOrder`].
    pub async fn accounts(&self) -> Result<Accounts, Error> {
        let rows = sqlx::query("SELECT order_id, amount_cents, state, credited_cents FROM orders")
            .fetch_all(&self.pool)
            .await?;
        rows.iter().map(|row| Ok((OrderId(row.try_get("order_id")?), read(row)?))).collect()
    }

    /// Waits until all connections are closed.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

async fn account(tx: &mut Transaction<'_, Sqlite>, order: &OrderId) -> Result<Option<Account>, Error> {
    let row =
        sqlx::query("SELECT order_id, amount_cents, state, credited_cents FROM orders WHERE order_id = $1")
            .bind(&order.0)
            .fetch_optional(&mut **tx)
            .await?;
    row.as_ref().map(read).transpose()
}

fn read(row: &sqlx::sqlite::SqliteRow) -> Result<Account, Error> {
    let word: String = row.try_get("state")?;
    let Some(state) = State::from_word(&word) else {
        return Err(Error::CorruptOrder(OrderId(row.try_get("order_id")?)));
    };
    let (amount, credited) = (Cents(row.try_get("amount_cents")?), Cents(row.try_get("credited_cents")?));
    Ok(Account { amount, state, credited })
}

async fn write(
    tx: &mut Transaction<'_, Sqlite>,
    event: &PaymentEvent,
    account: Account,
    receipt_id: &str,
) -> Result<(), Error> {
    sqlx::query(
        "INSERT INTO orders VALUES ($1, $2, $3, $4)
         ON CONFLICT (order_id) DO UPDATE SET state = excluded.state, credited_cents = excluded.credited_cents",
    )
    .bind(&event.order_id.0)
    .bind(account.amount.0)
    .bind(account.state.as_str())
    .bind(account.credited.0)
    .execute(&mut **tx)
    .await?;
    sqlx::query("INSERT INTO entries VALUES ($1, $2, $3, $4, $5)")
        .bind(&event.id)
        .bind(&event.order_id.0)
        .bind(event.kind.as_str())
        .bind(effect(event).0)
        .bind(receipt_id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
