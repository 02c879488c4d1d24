-- The whole first schema. Sibling of migrations/sqlite/0001_initial.sql: same tables, same columns.
--
-- Times named `…_at`, `not_…`, `deadline` are microseconds since 1970-01-01T00:00:00Z (bigint) and come in as arguments; only
-- `replica_sessions.expires_at` is the database's own clock, because replicas' clocks differ.
-- Texts that are compared byte by byte are COLLATE "C": faster, and immune to a changed collation after an upgrade.
-- Hot tables (receipts, events, log, lane_journal) have no foreign keys: a check per row would lock the row of a busy tenant.

-- One row. `shards` is fixed; `generation` rises when committed state was lost (restore, failover to a lagging standby).
-- `incarnation` is which server and timeline this was when a gateway last looked.
CREATE TABLE installation (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    database_id uuid    NOT NULL DEFAULT gen_random_uuid(),
    shards      integer NOT NULL CHECK (shards IN (1, 2, 4, 8, 16, 32, 64)),
    generation  bigint  NOT NULL DEFAULT 1 CHECK (generation >= 1),
    incarnation text,
    created_at  bigint  NOT NULL
);

INSERT INTO installation (shards, created_at)
SELECT coalesce(nullif(current_setting('portero.shards', true), ''), '4')::integer,
       (extract(epoch FROM now()) * 1000000)::bigint;

-- One row that is rewritten to prove that the database can commit.
CREATE TABLE write_check (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    writes   bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

INSERT INTO write_check DEFAULT VALUES;

-- One row. Every change of configuration raises it first, and so changes are serial.
CREATE TABLE config_revision (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    revision bigint  NOT NULL CHECK (revision >= 0)
);

INSERT INTO config_revision (revision) VALUES (0);

-- A deleted tenant's row stays behind its receipts; its name may be used again.
CREATE TABLE tenants (
    tenant_no    bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    tenant_id    text   COLLATE "C" NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 63),
    display_name text   NOT NULL CHECK (char_length(display_name) <= 200),
    created_at   bigint NOT NULL,
    deleted_at   bigint
);

CREATE UNIQUE INDEX tenants_id ON tenants (tenant_id) WHERE deleted_at IS NULL;

-- A deleted source's row stays behind its receipts; its name may be used again, its ingest key never. `settings` is a JSON
-- object of texts. Until `secret_expected_until` a handshake may bring the source's secret, once.
CREATE TABLE sources (
    source_no             bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    tenant_no             bigint NOT NULL REFERENCES tenants (tenant_no),
    source_id             text   COLLATE "C" NOT NULL CHECK (octet_length(source_id) BETWEEN 1 AND 63),
    provider              text   COLLATE "C" NOT NULL CHECK (octet_length(provider) BETWEEN 1 AND 63),
    preset                text   NOT NULL,
    recipe                text   NOT NULL CHECK (octet_length(recipe) <= 65536),
    ingest_key            bytea  NOT NULL CONSTRAINT sources_ingest_key UNIQUE CHECK (octet_length(ingest_key) = 16),
    public_urls           text[] NOT NULL CHECK (cardinality(public_urls) <= 4),
    settings              text   NOT NULL CHECK (octet_length(settings) BETWEEN 2 AND 131072),
    secret_expected_until bigint,
    created_at            bigint NOT NULL,
    deleted_at            bigint,
    CHECK ((preset = '') <> (recipe = ''))
);

CREATE UNIQUE INDEX sources_id ON sources (tenant_no, source_id) WHERE deleted_at IS NULL;

-- `unseen`: a handshake brought it and nobody was shown it yet, which is allowed once.
CREATE TABLE secrets (
    secret_no  bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    source_no  bigint NOT NULL REFERENCES sources (source_no),
    secret_id  text   COLLATE "C" NOT NULL CHECK (octet_length(secret_id) BETWEEN 1 AND 63),
    key_id     text   NOT NULL,
    sealed     bytea  NOT NULL CHECK (octet_length(sealed) BETWEEN 1 AND 65536),
    not_before bigint NOT NULL,
    not_after  bigint,
    unseen     boolean NOT NULL,
    created_at bigint NOT NULL,
    CONSTRAINT secrets_id UNIQUE (source_no, secret_id)
);

-- Requests refused of late, at most 50 of a source, for the people who look for the cause. Nothing of what was sent is
-- readable here but the method: `capture` is encrypted. Request ids rise with time.
CREATE TABLE rejections (
    request_id  uuid   PRIMARY KEY,
    tenant_no   bigint NOT NULL,
    source_no   bigint NOT NULL REFERENCES sources (source_no) ON DELETE CASCADE,
    received_at bigint NOT NULL,
    body_bytes  bigint NOT NULL CHECK (body_bytes >= 0),
    method      text   NOT NULL CHECK (octet_length(method) BETWEEN 1 AND 32),
    reason      text   NOT NULL CHECK (octet_length(reason) BETWEEN 1 AND 64),
    detail      text   NOT NULL CHECK (octet_length(detail) <= 1024),
    body_digest bytea  NOT NULL CHECK (octet_length(body_digest) = 32),
    key_id      text,
    capture     bytea  CHECK (octet_length(capture) BETWEEN 1 AND 1048576),
    CHECK ((key_id IS NULL) = (capture IS NULL))
);

ALTER TABLE rejections ALTER COLUMN capture SET STORAGE EXTERNAL;
CREATE INDEX rejections_source ON rejections (source_no, request_id);
CREATE INDEX rejections_received ON rejections (received_at);

-- `dead_letter_policy`: what becomes of an entity when one of its events dies. `expired` counts events that retention dropped
-- before they were delivered.
CREATE TABLE subscriptions (
    subscription_no    bigint   PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    subscription_id    text     COLLATE "C" NOT NULL CONSTRAINT subscriptions_id UNIQUE
                                CHECK (octet_length(subscription_id) BETWEEN 1 AND 63),
    tenant_no          bigint   REFERENCES tenants (tenant_no),
    sources            text[]   NOT NULL,
    event_types        text[]   NOT NULL,
    lanes              integer  NOT NULL CHECK (lanes IN (1, 2, 4, 8, 16, 32, 64, 128, 256)),
    attempts_max       integer  NOT NULL CHECK (attempts_max BETWEEN 1 AND 1000),
    defer_deadline_ms  bigint   NOT NULL CHECK (defer_deadline_ms >= 0),
    dead_letter_policy text     NOT NULL CHECK (dead_letter_policy IN ('continue', 'park_entity')),
    starts_after       bigint[] NOT NULL CHECK (cardinality(starts_after) BETWEEN 1 AND 64 AND 0 <= ALL (starts_after)),
    expired            bigint   NOT NULL DEFAULT 0 CHECK (expired >= 0),
    created_at         bigint   NOT NULL
);

-- The ledger and the only authority for "once". Never partitioned by time: the key must be unique over all of it.
-- A little room in each page lets the counters of repeats change without touching the indexes.
CREATE TABLE receipts (
    tenant_no    bigint  NOT NULL,
    source_no    bigint  NOT NULL,
    secret_no    bigint,
    received_at  bigint  NOT NULL,
    expires_at   bigint  NOT NULL,
    duplicates   bigint  NOT NULL DEFAULT 0 CHECK (duplicates >= 0),
    conflicts    bigint  NOT NULL DEFAULT 0 CHECK (conflicts >= 0),
    receipt_id   uuid    NOT NULL CONSTRAINT receipts_receipt_id UNIQUE,
    request_id   uuid    NOT NULL,
    id_derived   boolean NOT NULL,
    provider     text    COLLATE "C" NOT NULL CHECK (octet_length(provider) BETWEEN 1 AND 63),
    event_id     text    COLLATE "C" NOT NULL CHECK (octet_length(event_id) BETWEEN 1 AND 512),
    event_type   text    COLLATE "C" NOT NULL CHECK (octet_length(event_type) <= 256),
    ordering_key text    COLLATE "C" NOT NULL CHECK (octet_length(ordering_key) <= 512),
    body_digest  bytea   NOT NULL CHECK (octet_length(body_digest) = 32),
    trace_parent text    NOT NULL CHECK (octet_length(trace_parent) <= 256),
    PRIMARY KEY (tenant_no, provider, event_id)
) WITH (fillfactor = 95);

-- The accepted requests. UUIDv7 rises with time, so a range of receipts is a range of time and is dropped as a partition.
CREATE TABLE events (
    receipt_id   uuid  NOT NULL,
    content_type text  NOT NULL CHECK (octet_length(content_type) <= 4096),
    headers      bytea NOT NULL,
    body         bytea NOT NULL,
    PRIMARY KEY (receipt_id)
) PARTITION BY RANGE (receipt_id);

-- Bodies are written once and rarely read: no time is spent on compressing them, and up to 8 KiB they stay in the row,
-- which is one write instead of three.
CREATE TABLE events_default PARTITION OF events DEFAULT WITH (toast_tuple_target = 8160);
ALTER TABLE events_default ALTER COLUMN body SET STORAGE EXTERNAL, ALTER COLUMN headers SET STORAGE EXTERNAL;

-- Commit order. Narrow, because it is written under the shard's lock.
CREATE TABLE log (
    position    bigint   NOT NULL CHECK (position >= 1),
    tenant_no   bigint   NOT NULL,
    source_no   bigint   NOT NULL,
    entity_hash bigint   NOT NULL,
    accepted_at bigint   NOT NULL,
    body_bytes  integer  NOT NULL CHECK (body_bytes >= 0),
    shard       smallint NOT NULL CHECK (shard BETWEEN 0 AND 63),
    slot        smallint NOT NULL CHECK (slot BETWEEN 0 AND 255),
    receipt_id  uuid     NOT NULL,
    event_type  text     COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, position)
) PARTITION BY RANGE (position);

CREATE TABLE log_default PARTITION OF log DEFAULT;

-- From a receipt to its position, for people who ask. Receipts rise with time, so a summary per range of pages finds them
-- at almost no cost to the writers.
CREATE INDEX log_receipt ON log USING brin (receipt_id) WITH (pages_per_range = 16, autosummarize = on);

-- Positions. A sequence is not undone by a rollback and makes no dead rows under a held snapshot; the shard's advisory
-- lock, held until the commit is visible, makes its order the commit order. Never set CACHE: each backend would take a range of its own.
DO $$
BEGIN
    FOR shard IN 0..63 LOOP
        EXECUTE format('CREATE SEQUENCE log_position_%s AS bigint MINVALUE 1 NO CYCLE CACHE 1', shard);
    END LOOP;
END
$$;

-- One row per run of a gateway process. `fenced` goes from false to true, never back.
CREATE TABLE replica_sessions (
    session_id uuid        PRIMARY KEY,
    instance   text        NOT NULL,
    expires_at timestamptz NOT NULL,
    fenced     boolean     NOT NULL DEFAULT false
);

-- At most one live session per instance: two that open at once cannot overlook each other.
CREATE UNIQUE INDEX replica_sessions_instance ON replica_sessions (instance) WHERE NOT fenced;

-- Changes only when a lane changes hands. Epochs only rise.
CREATE TABLE lane_owners (
    subscription_no bigint   NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    lane            smallint NOT NULL CHECK (lane BETWEEN 0 AND 255),
    session_id      uuid     REFERENCES replica_sessions (session_id) ON DELETE SET NULL,
    epoch           bigint   NOT NULL CHECK (epoch >= 1),
    PRIMARY KEY (subscription_no, lane)
);

CREATE INDEX lane_owners_session ON lane_owners (session_id, subscription_no);

-- How much of a subscription's work each session takes, relative to the others. No row is a weight of 0.
CREATE TABLE lane_shares (
    subscription_no bigint NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    session_id      uuid   NOT NULL REFERENCES replica_sessions (session_id) ON DELETE CASCADE,
    weight          bigint NOT NULL CHECK (weight BETWEEN 1 AND 4294967295),
    PRIMARY KEY (subscription_no, session_id)
);

CREATE INDEX lane_shares_session ON lane_shares (session_id, subscription_no);

-- The newest stream of a consumer's instance under each session. Of one instance the row with the highest `joined` is the newest
-- of all; the sessions of the others find their rows `replaced` or outnumbered.
CREATE SEQUENCE consumer_joins AS bigint;

CREATE TABLE consumer_streams (
    subscription_no bigint  NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    session_id      uuid    NOT NULL REFERENCES replica_sessions (session_id) ON DELETE CASCADE,
    joined          bigint  NOT NULL,
    replaced        boolean NOT NULL DEFAULT false,
    instance        text    COLLATE "C" NOT NULL CHECK (octet_length(instance) <= 1024),
    boot            text    COLLATE "C" NOT NULL CHECK (octet_length(boot) <= 1024),
    PRIMARY KEY (subscription_no, instance, session_id)
);

CREATE INDEX consumer_streams_session ON consumer_streams (session_id, subscription_no);

-- What operators ask of whoever owns the lane. Its owner takes the rows away.
CREATE TABLE lane_requests (
    subscription_no bigint   NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    entity_hash     bigint   NOT NULL,
    requested_at    bigint   NOT NULL,
    lane            smallint NOT NULL CHECK (lane BETWEEN 0 AND 255),
    position        bigint   CHECK (position >= 1),
    action          text     NOT NULL CHECK (action IN ('retry', 'dead_letter')),
    requested_by    text     NOT NULL CHECK (octet_length(requested_by) <= 1024),
    PRIMARY KEY (subscription_no, lane, entity_hash)
);

-- Append-only: rows updated in place slow down as soon as someone holds a snapshot. The newest row of a lane is its state; older
-- ones are deleted in bulk. `acked` and `detours`: see the store's codec.
CREATE TABLE lane_journal (
    subscription_no bigint   NOT NULL,
    epoch           bigint   NOT NULL CHECK (epoch >= 1),
    seq             bigint   NOT NULL CHECK (seq >= 1),
    watermark       bigint   NOT NULL CHECK (watermark >= 0),
    lane            smallint NOT NULL CHECK (lane BETWEEN 0 AND 255),
    acked           bytea    NOT NULL,
    detours         bytea    NOT NULL,
    PRIMARY KEY (subscription_no, lane, epoch, seq)
);

ALTER TABLE lane_journal ALTER COLUMN acked SET STORAGE EXTERNAL, ALTER COLUMN detours SET STORAGE EXTERNAL;

-- `positions` is bounded by the delivery engine and is written as a whole: a statement for all of a flush's entities, whatever
-- they list.
CREATE TABLE parked_entities (
    subscription_no bigint   NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    entity_hash     bigint   NOT NULL,
    due_at          bigint   NOT NULL,
    first_failed_at bigint   NOT NULL,
    attempts        integer  NOT NULL CHECK (attempts >= 0),
    interruptions   integer  NOT NULL CHECK (interruptions >= 0),
    lane            smallint NOT NULL CHECK (lane BETWEEN 0 AND 255),
    state           text     NOT NULL CHECK (state IN ('retry', 'held', 'draining', 'blocked')),
    overflow_after  bigint   CHECK (overflow_after >= 0),
    overflow_last   bigint   CHECK (overflow_last > overflow_after),
    reason_code     text     NOT NULL,
    reason_text     text     NOT NULL CHECK (octet_length(reason_text) <= 1024),
    positions       bigint[] NOT NULL CHECK (0 < ALL (positions)),
    PRIMARY KEY (subscription_no, lane, entity_hash)
) WITH (fillfactor = 70);

CREATE TABLE deferred_events (
    subscription_no bigint   NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    position        bigint   NOT NULL CHECK (position >= 1),
    entity_hash     bigint   NOT NULL,
    deadline        bigint   NOT NULL,
    lane            smallint NOT NULL CHECK (lane BETWEEN 0 AND 255),
    reason_code     text     NOT NULL,
    reason_text     text     NOT NULL CHECK (octet_length(reason_text) <= 1024),
    PRIMARY KEY (subscription_no, lane, position)
);

CREATE TABLE dead_letters (
    subscription_no bigint   NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    position        bigint   NOT NULL CHECK (position >= 1),
    entity_hash     bigint   NOT NULL,
    first_failed_at bigint   NOT NULL,
    died_at         bigint   NOT NULL,
    attempts        integer  NOT NULL CHECK (attempts >= 0),
    interruptions   integer  NOT NULL CHECK (interruptions >= 0),
    lane            smallint NOT NULL CHECK (lane BETWEEN 0 AND 255),
    receipt_id      uuid     NOT NULL,
    reason_code     text     NOT NULL,
    reason_text     text     NOT NULL CHECK (octet_length(reason_text) <= 1024),
    PRIMARY KEY (subscription_no, lane, position)
);
