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

-- One row. Every change of configuration raises it first, and so changes are serial. `forgotten`: what was deleted up to that
-- revision is no longer among the tombstones.
CREATE TABLE config_revision (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    revision  bigint  NOT NULL CHECK (revision >= 0),
    forgotten bigint  NOT NULL DEFAULT 0 CHECK (forgotten BETWEEN 0 AND revision)
);

INSERT INTO config_revision (revision) VALUES (0);

-- What was deleted from configuration within the last day, so that gateways that know an older revision learn of it without
-- reading everything. Written by the triggers at the end of this file.
CREATE TABLE config_tombstones (
    revision   bigint NOT NULL CHECK (revision >= 0),
    no         bigint NOT NULL,
    deleted_at bigint NOT NULL,
    kind       text   NOT NULL CHECK (kind IN ('tenant', 'tenant_keys', 'source', 'secret', 'subscription', 'grant')),
    PRIMARY KEY (revision, kind, no)
);

CREATE INDEX config_tombstones_deleted ON config_tombstones (deleted_at);

-- The processes that run, by their own reports. `roles`: of edge, stream and admin. `seen_at` and `started_at` are the database's
-- clock, and `skew_us` is how far the process's own was ahead of it. `revision` is what it has applied, `key_id` the
-- key-encryption key that it wraps new data keys under, with a mark of its bits.
CREATE TABLE replicas (
    replica_id uuid   PRIMARY KEY,
    revision   bigint NOT NULL CHECK (revision >= 0),
    started_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    skew_us    bigint NOT NULL,
    instance   text   COLLATE "C" NOT NULL CHECK (octet_length(instance) <= 1024),
    version    text   NOT NULL CHECK (octet_length(version) <= 64),
    key_id     text   NOT NULL CHECK (octet_length(key_id) <= 96),
    roles      text[] NOT NULL CHECK (cardinality(roles) <= 8)
) WITH (fillfactor = 20);

-- Who changed what: a chain in which each row holds the hash of the one before and of itself (the store's `audit` says how).
-- Written under the lock of `config_revision`, so rows are serial and without gaps. Rows refer to nothing: they outlive what
-- they tell of. Append-only, for replicating sessions too.
CREATE TABLE audit_log (
    seq         bigint PRIMARY KEY CHECK (seq >= 1),
    changed_at  bigint NOT NULL,
    tenant_no   bigint,
    tenant_id   text   COLLATE "C" CHECK (octet_length(tenant_id) BETWEEN 1 AND 63),
    issuer      text   COLLATE "C" NOT NULL CHECK (octet_length(issuer) <= 1024),
    subject     text   COLLATE "C" NOT NULL CHECK (octet_length(subject) <= 1024),
    action      text   COLLATE "C" NOT NULL CHECK (octet_length(action) BETWEEN 1 AND 64),
    resource    text   COLLATE "C" NOT NULL CHECK (octet_length(resource) <= 512),
    request_id  text   COLLATE "C" NOT NULL CHECK (octet_length(request_id) <= 128),
    reason      text   CHECK (octet_length(reason) BETWEEN 1 AND 512),
    view_before text   CHECK (octet_length(view_before) <= 262144),
    view_after  text   CHECK (octet_length(view_after) <= 262144),
    prev_hash   bytea  NOT NULL CHECK (octet_length(prev_hash) = 32),
    hash        bytea  NOT NULL CHECK (octet_length(hash) = 32),
    CHECK (tenant_no IS NULL OR tenant_id IS NOT NULL)
);

CREATE INDEX audit_log_tenant ON audit_log (tenant_no, seq);

CREATE FUNCTION audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only();
ALTER TABLE audit_log ENABLE ALWAYS TRIGGER audit_log_append_only;

-- A deleted tenant's row stays behind its receipts; its name may be used again. An erased one has no data keys any more.
CREATE TABLE tenants (
    tenant_no    bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    revision     bigint NOT NULL DEFAULT 0,
    tenant_id    text   COLLATE "C" NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 63),
    display_name text   NOT NULL CHECK (char_length(display_name) <= 200),
    limit_events bigint CHECK (limit_events BETWEEN 0 AND 1000000),
    limit_burst  bigint CHECK (limit_burst BETWEEN 1 AND 1000000),
    limit_bytes  bigint CHECK (limit_bytes BETWEEN 0 AND 1099511627776),
    created_at   bigint NOT NULL,
    deleted_at   bigint,
    erased_at    bigint CHECK (erased_at IS NULL OR deleted_at IS NOT NULL)
);

CREATE UNIQUE INDEX tenants_id ON tenants (tenant_id) WHERE deleted_at IS NULL;

-- The keys of tenants' secrets, rejections and events, each wrapped under the key-encryption key of that name; the highest version
-- seals. What a version is never changes, only what it is wrapped in. `revision` as everywhere: of the row's insertion.
CREATE TABLE tenant_keys (
    tenant_no  bigint  NOT NULL REFERENCES tenants (tenant_no),
    revision   bigint  NOT NULL DEFAULT 0,
    created_at bigint  NOT NULL,
    version    integer NOT NULL CHECK (version BETWEEN 1 AND 65535),
    key_id     text    COLLATE "C" NOT NULL CHECK (octet_length(key_id) BETWEEN 1 AND 63),
    wrapped    bytea   NOT NULL CHECK (octet_length(wrapped) BETWEEN 1 AND 256),
    PRIMARY KEY (tenant_no, version)
);

CREATE INDEX tenant_keys_key ON tenant_keys (key_id, tenant_no, version);

-- A deleted source's row stays behind its receipts; its name may be used again, its ingest key never. `settings` is a JSON
-- object of texts; those that are secrets are in `sealed_settings`, each with the time when it was given, a dot, and its sealed
-- value in hexadecimal. Until `secret_expected_until` a handshake may bring the source's secret, once.
CREATE TABLE sources (
    source_no             bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    revision              bigint NOT NULL DEFAULT 0,
    tenant_no             bigint NOT NULL REFERENCES tenants (tenant_no),
    source_id             text   COLLATE "C" NOT NULL CHECK (octet_length(source_id) BETWEEN 1 AND 63),
    provider              text   COLLATE "C" NOT NULL CHECK (octet_length(provider) BETWEEN 1 AND 63),
    preset                text   NOT NULL,
    recipe                text   NOT NULL CHECK (octet_length(recipe) <= 65536),
    ingest_key            bytea  NOT NULL CONSTRAINT sources_ingest_key UNIQUE CHECK (octet_length(ingest_key) = 16),
    public_urls           text[] NOT NULL CHECK (cardinality(public_urls) <= 4),
    settings              text   NOT NULL CHECK (octet_length(settings) BETWEEN 2 AND 131072),
    sealed_settings       text   NOT NULL DEFAULT '{}' CHECK (octet_length(sealed_settings) BETWEEN 2 AND 65536),
    secret_expected_until bigint,
    limit_events          bigint CHECK (limit_events BETWEEN 0 AND 1000000),
    limit_burst           bigint CHECK (limit_burst BETWEEN 1 AND 1000000),
    limit_bytes           bigint CHECK (limit_bytes BETWEEN 0 AND 1099511627776),
    created_at            bigint NOT NULL,
    deleted_at            bigint,
    CHECK ((preset = '') <> (recipe = ''))
);

CREATE UNIQUE INDEX sources_id ON sources (tenant_no, source_id) WHERE deleted_at IS NULL;

-- Sources of which nothing is accepted any more. The accept statement looks here, so that
-- no gateway can accept by an old configuration.
CREATE INDEX sources_deleted ON sources (source_no) WHERE deleted_at IS NOT NULL;

-- `unseen`: a handshake brought it and nobody was shown it yet, which is allowed once. One with `revoked_at` verifies at no time.
CREATE TABLE secrets (
    secret_no  bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    revision   bigint NOT NULL DEFAULT 0,
    source_no  bigint NOT NULL REFERENCES sources (source_no),
    secret_id  text   COLLATE "C" NOT NULL CHECK (octet_length(secret_id) BETWEEN 1 AND 63),
    sealed     bytea  NOT NULL CHECK (octet_length(sealed) BETWEEN 1 AND 65536),
    not_before bigint NOT NULL,
    not_after  bigint,
    revoked_at bigint,
    unseen     boolean NOT NULL,
    created_at bigint NOT NULL,
    CONSTRAINT secrets_id UNIQUE (source_no, secret_id)
);

-- Secrets of which nothing is accepted any more: revoked ones, and those that were deleted. The accept statement looks here, so
-- that no gateway can accept by an old configuration. Rows of deleted secrets are swept when even their uses are forgotten.
CREATE TABLE revoked_secrets (
    secret_no  bigint PRIMARY KEY,
    revoked_at bigint NOT NULL
);

-- How secrets are used, and how much on each day (days since 1970-01-01, UTC). No configuration, and without foreign keys: counting
-- waits for no change, and what is counted late for a secret that is gone is swept.
CREATE TABLE secret_usage (
    secret_no     bigint PRIMARY KEY,
    uses          bigint NOT NULL CHECK (uses > 0),
    first_used_at bigint NOT NULL,
    last_used_at  bigint NOT NULL CHECK (last_used_at >= first_used_at)
) WITH (fillfactor = 50);

CREATE TABLE secret_uses (
    secret_no bigint  NOT NULL,
    day       integer NOT NULL,
    uses      bigint  NOT NULL CHECK (uses > 0),
    PRIMARY KEY (secret_no, day)
) WITH (fillfactor = 50);

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
    capture     bytea  CHECK (octet_length(capture) BETWEEN 1 AND 1048576)
);

ALTER TABLE rejections ALTER COLUMN capture SET STORAGE EXTERNAL;
CREATE INDEX rejections_source ON rejections (source_no, request_id);
CREATE INDEX rejections_received ON rejections (received_at);

-- `dead_letter_policy`: what becomes of an entity when one of its events dies. `expired` counts events that retention dropped
-- before they were delivered.
CREATE TABLE subscriptions (
    subscription_no    bigint   PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    revision           bigint   NOT NULL DEFAULT 0,
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

-- What callers may do. `subject` is exact, or ends with `*` and is a prefix.
CREATE TABLE grants (
    grant_no   bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    revision   bigint NOT NULL DEFAULT 0,
    tenant_no  bigint REFERENCES tenants (tenant_no),
    created_at bigint NOT NULL,
    grant_id   text   COLLATE "C" NOT NULL CONSTRAINT grants_id UNIQUE CHECK (octet_length(grant_id) BETWEEN 1 AND 63),
    issuer     text   COLLATE "C" NOT NULL CHECK (octet_length(issuer) BETWEEN 1 AND 1024),
    subject    text   COLLATE "C" NOT NULL CHECK (octet_length(subject) BETWEEN 1 AND 256),
    role       text   NOT NULL CHECK (role IN ('platform-admin', 'tenant-admin', 'security', 'operator', 'consumer', 'viewer'))
);

CREATE INDEX grants_tenant ON grants (tenant_no) WHERE tenant_no IS NOT NULL;

-- By number, so that a subscription that is created again under its name has no consumers of the deleted one.
CREATE TABLE grant_subscriptions (
    grant_no        bigint NOT NULL REFERENCES grants (grant_no) ON DELETE CASCADE,
    subscription_no bigint NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    PRIMARY KEY (grant_no, subscription_no)
);

CREATE INDEX grant_subscriptions_subscription ON grant_subscriptions (subscription_no);

-- When a name was last given up by the deletion of its tenant or subscription: what a token says of the former holder must not count
-- for the next one. One row for each name that was ever given up; it stays.
CREATE TABLE freed_names (
    revision bigint NOT NULL DEFAULT 0,
    freed_at bigint NOT NULL,
    kind     text   NOT NULL CHECK (kind IN ('tenant', 'subscription')),
    name     text   COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 63),
    PRIMARY KEY (kind, name)
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

-- The accepted requests: content type, headers and body of each, sealed with its tenant's data key. UUIDv7 rises with time, so a range of receipts is a range of time and is dropped as a partition.
CREATE TABLE events (
    receipt_id uuid  NOT NULL,
    content    bytea NOT NULL,
    PRIMARY KEY (receipt_id)
) PARTITION BY RANGE (receipt_id);

-- Contents are written once and rarely read, and what is sealed cannot be compressed. Up to 8 KiB they stay in the row,
-- which is one write instead of three.
CREATE TABLE events_default PARTITION OF events DEFAULT WITH (toast_tuple_target = 8160);
ALTER TABLE events_default ALTER COLUMN content SET STORAGE EXTERNAL;

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

-- What gateways keep in memory carries the revision of its last change, and leaves a tombstone when it goes, so that a change
-- costs them as much as it is large. Triggers see to it: no statement, and no cascade, can forget it. A change that raises no
-- revision (of what gateways do not act upon) leaves the present one.
CREATE FUNCTION config_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.revision := greatest(NEW.revision, (SELECT revision FROM config_revision));
    RETURN NEW;
END
$$;

-- Its arguments: the kind, and the column of the number. The tombstones of the day before go on this occasion.
CREATE FUNCTION config_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    now_us   bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    gone     bigint;
    swept_to bigint;
BEGIN
    EXECUTE format('SELECT ($1).%I', TG_ARGV[1]) INTO gone USING OLD;
    INSERT INTO config_tombstones (revision, kind, no, deleted_at)
    SELECT revision, TG_ARGV[0], gone, now_us FROM config_revision
    ON CONFLICT DO NOTHING;
    WITH swept AS (DELETE FROM config_tombstones WHERE deleted_at < now_us - 86400000000 RETURNING revision)
    SELECT max(revision) INTO swept_to FROM swept;
    IF swept_to IS NOT NULL THEN
        UPDATE config_revision SET forgotten = greatest(forgotten, swept_to);
    END IF;
    RETURN NULL;
END
$$;

-- Which subscriptions a grant names is part of the grant.
CREATE FUNCTION config_grant_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE grants SET revision = revision WHERE grant_no = coalesce(NEW.grant_no, OLD.grant_no);
    RETURN NULL;
END
$$;

CREATE INDEX tenants_revision ON tenants (revision);
CREATE INDEX tenant_keys_revision ON tenant_keys (revision);
CREATE INDEX sources_revision ON sources (revision);
CREATE INDEX secrets_revision ON secrets (revision);
CREATE INDEX subscriptions_revision ON subscriptions (revision);
CREATE INDEX grants_revision ON grants (revision);
CREATE INDEX freed_names_revision ON freed_names (revision);

CREATE TRIGGER tenants_changed BEFORE INSERT OR UPDATE ON tenants FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE TRIGGER tenant_keys_changed BEFORE INSERT ON tenant_keys FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE TRIGGER sources_changed BEFORE INSERT OR UPDATE ON sources FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE TRIGGER secrets_changed BEFORE INSERT OR UPDATE ON secrets FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE TRIGGER subscriptions_changed BEFORE INSERT OR UPDATE ON subscriptions FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE TRIGGER grants_changed BEFORE INSERT OR UPDATE ON grants FOR EACH ROW EXECUTE FUNCTION config_changed();
CREATE TRIGGER freed_names_changed BEFORE INSERT OR UPDATE ON freed_names FOR EACH ROW EXECUTE FUNCTION config_changed();

CREATE TRIGGER tenants_deleted AFTER DELETE ON tenants FOR EACH ROW EXECUTE FUNCTION config_deleted('tenant', 'tenant_no');
CREATE TRIGGER tenant_keys_deleted AFTER DELETE ON tenant_keys FOR EACH ROW EXECUTE FUNCTION config_deleted('tenant_keys', 'tenant_no');
CREATE TRIGGER sources_deleted AFTER DELETE ON sources FOR EACH ROW EXECUTE FUNCTION config_deleted('source', 'source_no');
CREATE TRIGGER secrets_deleted AFTER DELETE ON secrets FOR EACH ROW EXECUTE FUNCTION config_deleted('secret', 'secret_no');
CREATE TRIGGER subscriptions_deleted AFTER DELETE ON subscriptions FOR EACH ROW EXECUTE FUNCTION config_deleted('subscription', 'subscription_no');
CREATE TRIGGER grants_deleted AFTER DELETE ON grants FOR EACH ROW EXECUTE FUNCTION config_deleted('grant', 'grant_no');
CREATE TRIGGER tenants_marked AFTER UPDATE OF deleted_at ON tenants FOR EACH ROW
    WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL) EXECUTE FUNCTION config_deleted('tenant', 'tenant_no');
CREATE TRIGGER sources_marked AFTER UPDATE OF deleted_at ON sources FOR EACH ROW
    WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL) EXECUTE FUNCTION config_deleted('source', 'source_no');
CREATE TRIGGER grant_subscriptions_changed AFTER INSERT OR UPDATE OR DELETE ON grant_subscriptions
    FOR EACH ROW EXECUTE FUNCTION config_grant_changed();
