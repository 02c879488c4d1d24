-- The whole first schema. Sibling of migrations/postgres/0001_initial.sql: same tables, same columns, where not said
-- otherwise.
--
-- Times named `…_at`, `not_…`, `deadline` are microseconds since 1970-01-01T00:00:00Z and come in as arguments; only
-- `installation.created_at`, `deleted_at` and `replica_sessions.expires_at` are the database's own clock.
-- Ids are 16 bytes, entity hashes are 64 bits as a signed number. Text compares byte by byte. Text never holds NUL.

-- One row. `shards` is fixed; `generation` rises when committed state was lost (restore). `incarnation` is drawn at each start and
-- kept beside the file too, so that a restored file is recognised.
CREATE TABLE installation (
    only_row    INTEGER PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    database_id BLOB    NOT NULL CHECK (octet_length(database_id) = 16),
    shards      INTEGER NOT NULL CHECK (shards IN (1, 2, 4, 8, 16, 32, 64)),
    generation  INTEGER NOT NULL DEFAULT 1 CHECK (generation >= 1),
    incarnation TEXT,
    created_at  INTEGER NOT NULL
) STRICT;

INSERT INTO installation (database_id, shards, created_at)
VALUES (randomblob(16), 4, CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER));

-- One row that is rewritten to prove that the database can commit.
CREATE TABLE write_check (
    only_row INTEGER PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    writes   INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO write_check DEFAULT VALUES;

-- One row. Every change of configuration raises it.
CREATE TABLE config_revision (
    only_row INTEGER PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    revision INTEGER NOT NULL CHECK (revision >= 0)
) STRICT;

INSERT INTO config_revision (revision) VALUES (0);

-- A deleted tenant's row stays behind its receipts; its name may be used again. AUTOINCREMENT, here and below: a number is
-- never used twice, because receipts and journals refer to it.
CREATE TABLE tenants (
    tenant_no    INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    TEXT    NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 63),
    display_name TEXT    NOT NULL CHECK (length(display_name) <= 200 AND instr(display_name, char(0)) = 0),
    created_at   INTEGER NOT NULL,
    deleted_at   INTEGER
) STRICT;

CREATE UNIQUE INDEX tenants_id ON tenants (tenant_id) WHERE deleted_at IS NULL;

-- A deleted source's row stays behind its receipts; its name may be used again, its ingest key never. `public_urls` is a JSON
-- list and `settings` a JSON object of texts. Until `secret_expected_until` a handshake may bring the source's secret, once.
CREATE TABLE sources (
    source_no             INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_no             INTEGER NOT NULL REFERENCES tenants (tenant_no),
    source_id             TEXT    NOT NULL CHECK (octet_length(source_id) BETWEEN 1 AND 63),
    provider              TEXT    NOT NULL CHECK (octet_length(provider) BETWEEN 1 AND 63),
    preset                TEXT    NOT NULL CHECK (instr(preset, char(0)) = 0),
    recipe                TEXT    NOT NULL CHECK (octet_length(recipe) <= 65536 AND instr(recipe, char(0)) = 0),
    ingest_key            BLOB    NOT NULL UNIQUE CHECK (octet_length(ingest_key) = 16),
    public_urls           TEXT    NOT NULL CHECK (json_array_length(public_urls) <= 4),
    settings              TEXT    NOT NULL CHECK (octet_length(settings) BETWEEN 2 AND 131072),
    secret_expected_until INTEGER,
    created_at            INTEGER NOT NULL,
    deleted_at            INTEGER,
    CHECK ((preset = '') <> (recipe = ''))
) STRICT;

CREATE UNIQUE INDEX sources_id ON sources (tenant_no, source_id) WHERE deleted_at IS NULL;

-- `unseen`: a handshake brought it and nobody was shown it yet, which is allowed once.
CREATE TABLE secrets (
    secret_no  INTEGER PRIMARY KEY AUTOINCREMENT,
    source_no  INTEGER NOT NULL REFERENCES sources (source_no),
    secret_id  TEXT    NOT NULL CHECK (octet_length(secret_id) BETWEEN 1 AND 63),
    key_id     TEXT    NOT NULL CHECK (instr(key_id, char(0)) = 0),
    sealed     BLOB    NOT NULL CHECK (octet_length(sealed) BETWEEN 1 AND 65536),
    not_before INTEGER NOT NULL,
    not_after  INTEGER,
    unseen     INTEGER NOT NULL CHECK (unseen IN (0, 1)),
    created_at INTEGER NOT NULL,
    UNIQUE (source_no, secret_id)
) STRICT;

-- `sources`, `event_types` and `starts_after` are JSON arrays, where the sibling has arrays.
-- Requests refused of late, at most 50 of a source, for the people who look for the cause. Nothing of what was sent is
-- readable here but the method: `capture` is encrypted. Request ids rise with time.
CREATE TABLE rejections (
    request_id  BLOB    PRIMARY KEY NOT NULL CHECK (octet_length(request_id) = 16),
    tenant_no   INTEGER NOT NULL,
    source_no   INTEGER NOT NULL REFERENCES sources (source_no) ON DELETE CASCADE,
    received_at INTEGER NOT NULL,
    body_bytes  INTEGER NOT NULL CHECK (body_bytes >= 0),
    method      TEXT    NOT NULL CHECK (octet_length(method) BETWEEN 1 AND 32 AND instr(method, char(0)) = 0),
    reason      TEXT    NOT NULL CHECK (octet_length(reason) BETWEEN 1 AND 64 AND instr(reason, char(0)) = 0),
    detail      TEXT    NOT NULL CHECK (octet_length(detail) <= 1024 AND instr(detail, char(0)) = 0),
    body_digest BLOB    NOT NULL CHECK (octet_length(body_digest) = 32),
    key_id      TEXT    CHECK (instr(key_id, char(0)) = 0),
    capture     BLOB    CHECK (octet_length(capture) BETWEEN 1 AND 1048576),
    CHECK ((key_id IS NULL) = (capture IS NULL))
) STRICT;

CREATE INDEX rejections_source ON rejections (source_no, request_id);
CREATE INDEX rejections_received ON rejections (received_at);

-- `dead_letter_policy`: what becomes of an entity when one of its events dies. `expired` counts events that retention dropped
-- before they were delivered.
CREATE TABLE subscriptions (
    subscription_no    INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription_id    TEXT    NOT NULL UNIQUE CHECK (octet_length(subscription_id) BETWEEN 1 AND 63),
    tenant_no          INTEGER REFERENCES tenants (tenant_no),
    sources            TEXT    NOT NULL CHECK (json_type(sources) = 'array'),
    event_types        TEXT    NOT NULL CHECK (json_type(event_types) = 'array'),
    lanes              INTEGER NOT NULL CHECK (lanes IN (1, 2, 4, 8, 16, 32, 64, 128, 256)),
    attempts_max       INTEGER NOT NULL CHECK (attempts_max BETWEEN 1 AND 1000),
    defer_deadline_ms  INTEGER NOT NULL CHECK (defer_deadline_ms >= 0),
    dead_letter_policy TEXT    NOT NULL CHECK (dead_letter_policy IN ('continue', 'park_entity')),
    starts_after       TEXT    NOT NULL CHECK (json_array_length(starts_after) BETWEEN 1 AND 64),
    expired            INTEGER NOT NULL DEFAULT 0 CHECK (expired >= 0),
    created_at         INTEGER NOT NULL
) STRICT;

CREATE INDEX subscriptions_tenant ON subscriptions (tenant_no) WHERE tenant_no IS NOT NULL;

-- The ledger and the only authority for "once". `shard` and `position` are known when the row is written, because one
-- writer writes it all; the sibling finds them through its log.
CREATE TABLE receipts (
    tenant_no    INTEGER NOT NULL REFERENCES tenants (tenant_no),
    provider     TEXT    NOT NULL CHECK (octet_length(provider) BETWEEN 1 AND 63),
    event_id     TEXT    NOT NULL CHECK (octet_length(event_id) BETWEEN 1 AND 512 AND instr(event_id, char(0)) = 0),
    receipt_id   BLOB    NOT NULL UNIQUE CHECK (octet_length(receipt_id) = 16),
    source_no    INTEGER NOT NULL REFERENCES sources (source_no),
    secret_no    INTEGER,
    id_derived   INTEGER NOT NULL CHECK (id_derived IN (0, 1)),
    event_type   TEXT    NOT NULL CHECK (octet_length(event_type) <= 256 AND instr(event_type, char(0)) = 0),
    ordering_key TEXT    NOT NULL CHECK (octet_length(ordering_key) <= 512 AND instr(ordering_key, char(0)) = 0),
    body_digest  BLOB    NOT NULL CHECK (octet_length(body_digest) = 32),
    received_at  INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    request_id   BLOB    NOT NULL CHECK (octet_length(request_id) = 16),
    trace_parent TEXT    NOT NULL CHECK (octet_length(trace_parent) <= 256 AND instr(trace_parent, char(0)) = 0),
    shard        INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 63),
    position     INTEGER NOT NULL CHECK (position >= 1),
    duplicates   INTEGER NOT NULL DEFAULT 0 CHECK (duplicates >= 0),
    conflicts    INTEGER NOT NULL DEFAULT 0 CHECK (conflicts >= 0),
    PRIMARY KEY (tenant_no, provider, event_id)
) STRICT;

CREATE INDEX receipts_source ON receipts (source_no);

-- The accepted requests. `headers`: see the store's codec.
CREATE TABLE events (
    receipt_id   BLOB PRIMARY KEY NOT NULL REFERENCES receipts (receipt_id),
    content_type TEXT NOT NULL CHECK (octet_length(content_type) <= 4096 AND instr(content_type, char(0)) = 0),
    headers      BLOB NOT NULL,
    body         BLOB NOT NULL
) STRICT;

-- Commit order.
CREATE TABLE log (
    shard       INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 63),
    position    INTEGER NOT NULL CHECK (position >= 1),
    receipt_id  BLOB    NOT NULL CHECK (octet_length(receipt_id) = 16),
    tenant_no   INTEGER NOT NULL,
    source_no   INTEGER NOT NULL,
    event_type  TEXT    NOT NULL,
    slot        INTEGER NOT NULL CHECK (slot BETWEEN 0 AND 255),
    entity_hash INTEGER NOT NULL,
    accepted_at INTEGER NOT NULL,
    body_bytes  INTEGER NOT NULL CHECK (body_bytes >= 0),
    PRIMARY KEY (shard, position)
) STRICT, WITHOUT ROWID;

-- The last position of each shard, where the sibling has sequences. It outlives the entries that retention drops.
CREATE TABLE log_heads (
    shard INTEGER PRIMARY KEY CHECK (shard BETWEEN 0 AND 63),
    head  INTEGER NOT NULL CHECK (head >= 0)
) STRICT;

INSERT INTO log_heads (shard, head)
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 63)
SELECT n, 0 FROM numbers, installation WHERE n < installation.shards;

-- A head never goes back.
CREATE TRIGGER log_heads_rise BEFORE UPDATE ON log_heads WHEN NEW.head < OLD.head
BEGIN SELECT raise(ABORT, 'a head never goes back'); END;

-- One row per run of a gateway process. `fenced` goes from 0 to 1, never back.
CREATE TABLE replica_sessions (
    session_id BLOB    PRIMARY KEY NOT NULL CHECK (octet_length(session_id) = 16),
    instance   TEXT    NOT NULL CHECK (instr(instance, char(0)) = 0),
    expires_at INTEGER NOT NULL,
    fenced     INTEGER NOT NULL DEFAULT 0 CHECK (fenced IN (0, 1))
) STRICT, WITHOUT ROWID;

-- One process owns this database, so one session lives.
CREATE UNIQUE INDEX replica_sessions_live ON replica_sessions (fenced) WHERE fenced = 0;

-- Changes only when a lane changes hands. Epochs only rise.
CREATE TABLE lane_owners (
    subscription_no INTEGER NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    lane            INTEGER NOT NULL CHECK (lane BETWEEN 0 AND 255),
    session_id      BLOB    REFERENCES replica_sessions (session_id) ON DELETE SET NULL,
    epoch           INTEGER NOT NULL CHECK (epoch >= 1),
    PRIMARY KEY (subscription_no, lane)
) STRICT, WITHOUT ROWID;

CREATE INDEX lane_owners_session ON lane_owners (session_id) WHERE session_id IS NOT NULL;

-- How much of a subscription's work each session takes, relative to the others. No row is a weight of 0.
CREATE TABLE lane_shares (
    subscription_no INTEGER NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    session_id      BLOB    NOT NULL REFERENCES replica_sessions (session_id) ON DELETE CASCADE,
    weight          INTEGER NOT NULL CHECK (weight BETWEEN 1 AND 4294967295),
    PRIMARY KEY (subscription_no, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX lane_shares_session ON lane_shares (session_id);

-- The newest stream of a consumer's instance under each session. Of one instance the row with the highest `joined` is the newest
-- of all; the sessions of the others find their rows `replaced` or outnumbered.
CREATE TABLE consumer_streams (
    subscription_no INTEGER NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    instance        TEXT    NOT NULL CHECK (octet_length(instance) <= 1024 AND instr(instance, char(0)) = 0),
    session_id      BLOB    NOT NULL REFERENCES replica_sessions (session_id) ON DELETE CASCADE,
    boot            TEXT    NOT NULL CHECK (octet_length(boot) <= 1024 AND instr(boot, char(0)) = 0),
    joined          INTEGER NOT NULL,
    replaced        INTEGER NOT NULL DEFAULT 0 CHECK (replaced IN (0, 1)),
    PRIMARY KEY (subscription_no, instance, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX consumer_streams_session ON consumer_streams (session_id);

-- What operators ask of whoever owns the lane. Its owner takes the rows away.
CREATE TABLE lane_requests (
    subscription_no INTEGER NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    lane            INTEGER NOT NULL CHECK (lane BETWEEN 0 AND 255),
    entity_hash     INTEGER NOT NULL,
    position        INTEGER CHECK (position >= 1),
    action          TEXT    NOT NULL CHECK (action IN ('retry', 'dead_letter')),
    requested_by    TEXT    NOT NULL CHECK (octet_length(requested_by) <= 1024 AND instr(requested_by, char(0)) = 0),
    requested_at    INTEGER NOT NULL,
    PRIMARY KEY (subscription_no, lane, entity_hash)
) STRICT, WITHOUT ROWID;

-- Append-only; older states are deleted now and then. The last state of a lane has the highest (epoch, seq). `acked`: see
-- the store's codec.
CREATE TABLE lane_journal (
    subscription_no INTEGER NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    lane            INTEGER NOT NULL CHECK (lane BETWEEN 0 AND 255),
    epoch           INTEGER NOT NULL CHECK (epoch >= 1),
    seq             INTEGER NOT NULL CHECK (seq >= 1),
    watermark       INTEGER NOT NULL CHECK (watermark >= 0),
    acked           BLOB    NOT NULL,
    detours         BLOB    NOT NULL,
    PRIMARY KEY (subscription_no, lane, epoch, seq)
) STRICT, WITHOUT ROWID;

-- `positions` is a JSON array, bounded by the delivery engine, and is written as a whole.
CREATE TABLE parked_entities (
    subscription_no INTEGER NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    lane            INTEGER NOT NULL CHECK (lane BETWEEN 0 AND 255),
    entity_hash     INTEGER NOT NULL,
    state           TEXT    NOT NULL CHECK (state IN ('retry', 'held', 'draining', 'blocked')),
    overflow_after  INTEGER CHECK (overflow_after >= 0),
    overflow_last   INTEGER CHECK (overflow_last > overflow_after),
    attempts        INTEGER NOT NULL CHECK (attempts >= 0),
    interruptions   INTEGER NOT NULL CHECK (interruptions >= 0),
    due_at          INTEGER NOT NULL,
    first_failed_at INTEGER NOT NULL,
    reason_code     TEXT    NOT NULL,
    reason_text     TEXT    NOT NULL CHECK (octet_length(reason_text) <= 1024),
    positions       TEXT    NOT NULL CHECK (json_type(positions) = 'array'),
    PRIMARY KEY (subscription_no, lane, entity_hash)
) STRICT;

CREATE TABLE deferred_events (
    subscription_no INTEGER NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    lane            INTEGER NOT NULL CHECK (lane BETWEEN 0 AND 255),
    position        INTEGER NOT NULL CHECK (position >= 1),
    entity_hash     INTEGER NOT NULL,
    deadline        INTEGER NOT NULL,
    reason_code     TEXT    NOT NULL,
    reason_text     TEXT    NOT NULL CHECK (octet_length(reason_text) <= 1024),
    PRIMARY KEY (subscription_no, lane, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE dead_letters (
    subscription_no INTEGER NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    lane            INTEGER NOT NULL CHECK (lane BETWEEN 0 AND 255),
    position        INTEGER NOT NULL CHECK (position >= 1),
    receipt_id      BLOB    NOT NULL CHECK (octet_length(receipt_id) = 16),
    entity_hash     INTEGER NOT NULL,
    attempts        INTEGER NOT NULL CHECK (attempts >= 0),
    interruptions   INTEGER NOT NULL CHECK (interruptions >= 0),
    reason_code     TEXT    NOT NULL,
    reason_text     TEXT    NOT NULL CHECK (octet_length(reason_text) <= 1024),
    first_failed_at INTEGER NOT NULL,
    died_at         INTEGER NOT NULL,
    PRIMARY KEY (subscription_no, lane, position)
) STRICT, WITHOUT ROWID;
