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

-- One row. Every change of configuration raises it. `forgotten`: what was deleted up to that revision is no longer among the
-- tombstones.
CREATE TABLE config_revision (
    only_row  INTEGER PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    revision  INTEGER NOT NULL CHECK (revision >= 0),
    forgotten INTEGER NOT NULL DEFAULT 0 CHECK (forgotten BETWEEN 0 AND revision)
) STRICT;

INSERT INTO config_revision (revision) VALUES (0);

-- What was deleted from configuration within the last day, so that gateways that know an older revision learn of it without
-- reading everything. Written by the triggers at the end of this file.
CREATE TABLE config_tombstones (
    revision   INTEGER NOT NULL CHECK (revision >= 0),
    no         INTEGER NOT NULL,
    deleted_at INTEGER NOT NULL,
    kind       TEXT    NOT NULL CHECK (kind IN ('tenant', 'tenant_keys', 'source', 'secret', 'subscription', 'grant')),
    PRIMARY KEY (revision, kind, no)
) STRICT;

CREATE INDEX config_tombstones_deleted ON config_tombstones (deleted_at);

-- The process that runs, by its own reports. `roles`: a JSON list of edge, stream and admin. `seen_at` and `started_at` are the
-- database's clock, and `skew_us` is how far the process's own was ahead of it. `revision` is what it has applied,
-- `key_id` the key-encryption key that it wraps new data keys under, with a mark of its bits.
CREATE TABLE replicas (
    replica_id BLOB    PRIMARY KEY NOT NULL CHECK (octet_length(replica_id) = 16),
    revision   INTEGER NOT NULL CHECK (revision >= 0),
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    skew_us    INTEGER NOT NULL,
    instance   TEXT    NOT NULL CHECK (octet_length(instance) <= 1024 AND instr(instance, char(0)) = 0),
    version    TEXT    NOT NULL CHECK (octet_length(version) <= 64 AND instr(version, char(0)) = 0),
    key_id     TEXT    NOT NULL CHECK (octet_length(key_id) <= 96 AND instr(key_id, char(0)) = 0),
    roles      TEXT    NOT NULL CHECK (json_array_length(roles) <= 8)
) STRICT;

-- Who changed what: a chain in which each row holds the hash of the one before and of itself (the store's `audit` says how).
-- Rows refer to nothing: they outlive what they tell of. Append-only; a row in the place of another would go past the
-- trigger for deletions, so rows come in their order only.
CREATE TABLE audit_log (
    seq         INTEGER PRIMARY KEY CHECK (seq >= 1),
    changed_at  INTEGER NOT NULL,
    tenant_no   INTEGER,
    tenant_id   TEXT    CHECK (octet_length(tenant_id) BETWEEN 1 AND 63),
    issuer      TEXT    NOT NULL CHECK (octet_length(issuer) <= 1024 AND instr(issuer, char(0)) = 0),
    subject     TEXT    NOT NULL CHECK (octet_length(subject) <= 1024 AND instr(subject, char(0)) = 0),
    action      TEXT    NOT NULL CHECK (octet_length(action) BETWEEN 1 AND 64 AND instr(action, char(0)) = 0),
    resource    TEXT    NOT NULL CHECK (octet_length(resource) <= 512 AND instr(resource, char(0)) = 0),
    request_id  TEXT    NOT NULL CHECK (octet_length(request_id) <= 128 AND instr(request_id, char(0)) = 0),
    reason      TEXT    CHECK (octet_length(reason) BETWEEN 1 AND 512 AND instr(reason, char(0)) = 0),
    view_before TEXT    CHECK (octet_length(view_before) <= 262144 AND instr(view_before, char(0)) = 0),
    view_after  TEXT    CHECK (octet_length(view_after) <= 262144 AND instr(view_after, char(0)) = 0),
    prev_hash   BLOB    NOT NULL CHECK (octet_length(prev_hash) = 32),
    hash        BLOB    NOT NULL CHECK (octet_length(hash) = 32),
    CHECK (tenant_no IS NULL OR tenant_id IS NOT NULL)
) STRICT;

CREATE INDEX audit_log_tenant ON audit_log (tenant_no, seq);

CREATE TRIGGER audit_log_in_order BEFORE INSERT ON audit_log
    WHEN NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM audit_log)
BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log
BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log
BEGIN SELECT raise(ABORT, 'the audit log is append-only'); END;

-- A deleted tenant's row stays behind its receipts; its name may be used again. AUTOINCREMENT, here and below: a number is
-- never used twice, because receipts and journals refer to it.
CREATE TABLE tenants (
    tenant_no    INTEGER PRIMARY KEY AUTOINCREMENT,
    revision     INTEGER NOT NULL DEFAULT 0,
    tenant_id    TEXT    NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 63),
    display_name TEXT    NOT NULL CHECK (length(display_name) <= 200 AND instr(display_name, char(0)) = 0),
    limit_events INTEGER CHECK (limit_events BETWEEN 0 AND 1000000),
    limit_burst  INTEGER CHECK (limit_burst BETWEEN 1 AND 1000000),
    limit_bytes  INTEGER CHECK (limit_bytes BETWEEN 0 AND 1099511627776),
    created_at   INTEGER NOT NULL,
    deleted_at   INTEGER,
    erased_at    INTEGER CHECK (erased_at IS NULL OR deleted_at IS NOT NULL)
) STRICT;

CREATE UNIQUE INDEX tenants_id ON tenants (tenant_id) WHERE deleted_at IS NULL;

-- The keys of tenants' secrets, rejections and events, each wrapped under the key-encryption key of that name; the highest version
-- seals. What a version is never changes, only what it is wrapped in. `revision` as everywhere: of the row's insertion.
CREATE TABLE tenant_keys (
    tenant_no  INTEGER NOT NULL REFERENCES tenants (tenant_no),
    revision   INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    version    INTEGER NOT NULL CHECK (version BETWEEN 1 AND 65535),
    key_id     TEXT    NOT NULL CHECK (octet_length(key_id) BETWEEN 1 AND 63 AND instr(key_id, char(0)) = 0),
    wrapped    BLOB    NOT NULL CHECK (octet_length(wrapped) BETWEEN 1 AND 256),
    PRIMARY KEY (tenant_no, version)
) STRICT, WITHOUT ROWID;

CREATE INDEX tenant_keys_key ON tenant_keys (key_id, tenant_no, version);

-- A deleted source's row stays behind its receipts; its name may be used again, its ingest key never. `public_urls` is a JSON
-- list and `settings` a JSON object of texts; those that are secrets are in `sealed_settings`, each with the time when it was
-- given, a dot, and its sealed value in hexadecimal. Until `secret_expected_until` a handshake may bring the source's secret, once.
CREATE TABLE sources (
    source_no             INTEGER PRIMARY KEY AUTOINCREMENT,
    revision              INTEGER NOT NULL DEFAULT 0,
    tenant_no             INTEGER NOT NULL REFERENCES tenants (tenant_no),
    source_id             TEXT    NOT NULL CHECK (octet_length(source_id) BETWEEN 1 AND 63),
    provider              TEXT    NOT NULL CHECK (octet_length(provider) BETWEEN 1 AND 63),
    preset                TEXT    NOT NULL CHECK (instr(preset, char(0)) = 0),
    recipe                TEXT    NOT NULL CHECK (octet_length(recipe) <= 65536 AND instr(recipe, char(0)) = 0),
    ingest_key            BLOB    NOT NULL UNIQUE CHECK (octet_length(ingest_key) = 16),
    public_urls           TEXT    NOT NULL CHECK (json_array_length(public_urls) <= 4),
    settings              TEXT    NOT NULL CHECK (octet_length(settings) BETWEEN 2 AND 131072),
    sealed_settings       TEXT    NOT NULL DEFAULT '{}' CHECK (octet_length(sealed_settings) BETWEEN 2 AND 65536),
    secret_expected_until INTEGER,
    limit_events          INTEGER CHECK (limit_events BETWEEN 0 AND 1000000),
    limit_burst           INTEGER CHECK (limit_burst BETWEEN 1 AND 1000000),
    limit_bytes           INTEGER CHECK (limit_bytes BETWEEN 0 AND 1099511627776),
    created_at            INTEGER NOT NULL,
    deleted_at            INTEGER,
    CHECK ((preset = '') <> (recipe = ''))
) STRICT;

CREATE UNIQUE INDEX sources_id ON sources (tenant_no, source_id) WHERE deleted_at IS NULL;

-- Sources of which nothing is accepted any more. Accepting looks here, so that no gateway can accept by an
-- old configuration.
CREATE INDEX sources_deleted ON sources (source_no) WHERE deleted_at IS NOT NULL;

-- `unseen`: a handshake brought it and nobody was shown it yet, which is allowed once. One with `revoked_at` verifies at no time.
CREATE TABLE secrets (
    secret_no  INTEGER PRIMARY KEY AUTOINCREMENT,
    revision   INTEGER NOT NULL DEFAULT 0,
    source_no  INTEGER NOT NULL REFERENCES sources (source_no),
    secret_id  TEXT    NOT NULL CHECK (octet_length(secret_id) BETWEEN 1 AND 63),
    sealed     BLOB    NOT NULL CHECK (octet_length(sealed) BETWEEN 1 AND 65536),
    not_before INTEGER NOT NULL,
    not_after  INTEGER,
    revoked_at INTEGER,
    unseen     INTEGER NOT NULL CHECK (unseen IN (0, 1)),
    created_at INTEGER NOT NULL,
    UNIQUE (source_no, secret_id)
) STRICT;

-- Secrets of which nothing is accepted any more: revoked ones, and those that were deleted. Accepting looks here, so that no
-- gateway can accept by an old configuration. Rows of deleted secrets are swept when even their uses are forgotten.
CREATE TABLE revoked_secrets (
    secret_no  INTEGER PRIMARY KEY,
    revoked_at INTEGER NOT NULL
) STRICT;

-- How secrets are used, and how much on each day (days since 1970-01-01, UTC). No configuration, and without foreign keys: what is
-- counted late for a secret that is gone is swept.
CREATE TABLE secret_usage (
    secret_no     INTEGER PRIMARY KEY,
    uses          INTEGER NOT NULL CHECK (uses > 0),
    first_used_at INTEGER NOT NULL,
    last_used_at  INTEGER NOT NULL CHECK (last_used_at >= first_used_at)
) STRICT;

CREATE TABLE secret_uses (
    secret_no INTEGER NOT NULL,
    day       INTEGER NOT NULL,
    uses      INTEGER NOT NULL CHECK (uses > 0),
    PRIMARY KEY (secret_no, day)
) STRICT, WITHOUT ROWID;

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
    capture     BLOB    CHECK (octet_length(capture) BETWEEN 1 AND 1048576)
) STRICT;

CREATE INDEX rejections_source ON rejections (source_no, request_id);
CREATE INDEX rejections_received ON rejections (received_at);

-- `dead_letter_policy`: what becomes of an entity when one of its events dies. `expired` counts events that retention dropped
-- before they were delivered.
CREATE TABLE subscriptions (
    subscription_no    INTEGER PRIMARY KEY AUTOINCREMENT,
    revision           INTEGER NOT NULL DEFAULT 0,
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

-- What callers may do. `subject` is exact, or ends with `*` and is a prefix.
CREATE TABLE grants (
    grant_no   INTEGER PRIMARY KEY AUTOINCREMENT,
    revision   INTEGER NOT NULL DEFAULT 0,
    tenant_no  INTEGER REFERENCES tenants (tenant_no),
    created_at INTEGER NOT NULL,
    grant_id   TEXT    NOT NULL UNIQUE CHECK (octet_length(grant_id) BETWEEN 1 AND 63),
    issuer     TEXT    NOT NULL CHECK (octet_length(issuer) BETWEEN 1 AND 1024),
    subject    TEXT    NOT NULL CHECK (octet_length(subject) BETWEEN 1 AND 256),
    role       TEXT    NOT NULL CHECK (role IN ('platform-admin', 'tenant-admin', 'security', 'operator', 'consumer', 'viewer'))
) STRICT;

CREATE INDEX grants_tenant ON grants (tenant_no) WHERE tenant_no IS NOT NULL;

-- By number, so that a subscription that is created again under its name has no consumers of the deleted one.
CREATE TABLE grant_subscriptions (
    grant_no        INTEGER NOT NULL REFERENCES grants (grant_no) ON DELETE CASCADE,
    subscription_no INTEGER NOT NULL REFERENCES subscriptions (subscription_no) ON DELETE CASCADE,
    PRIMARY KEY (grant_no, subscription_no)
) STRICT;

CREATE INDEX grant_subscriptions_subscription ON grant_subscriptions (subscription_no);

-- When a name was last given up by the deletion of its tenant or subscription: what a token says of the former holder must not count
-- for the next one. One row for each name that was ever given up; it stays.
CREATE TABLE freed_names (
    revision INTEGER NOT NULL DEFAULT 0,
    freed_at INTEGER NOT NULL,
    kind     TEXT    NOT NULL CHECK (kind IN ('tenant', 'subscription')),
    name     TEXT    NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 63),
    PRIMARY KEY (kind, name)
) STRICT;

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

-- The accepted requests: content type, headers and body of each, sealed with its tenant's data key.
CREATE TABLE events (
    receipt_id   BLOB PRIMARY KEY NOT NULL REFERENCES receipts (receipt_id),
    content      BLOB NOT NULL
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

-- What gateways keep in memory carries the revision of its last change, and leaves a tombstone when it goes, so that a change
-- costs them as much as it is large. Triggers see to it: no statement, and no cascade, can forget it. A change that raises no
-- revision (of what gateways do not act upon) leaves the present one. A trigger does not set off itself.
CREATE INDEX tenants_revision ON tenants (revision);
CREATE INDEX tenant_keys_revision ON tenant_keys (revision);
CREATE INDEX sources_revision ON sources (revision);
CREATE INDEX secrets_revision ON secrets (revision);
CREATE INDEX subscriptions_revision ON subscriptions (revision);
CREATE INDEX grants_revision ON grants (revision);
CREATE INDEX freed_names_revision ON freed_names (revision);

CREATE TRIGGER tenants_created AFTER INSERT ON tenants WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE tenants SET revision = (SELECT revision FROM config_revision) WHERE tenant_no = NEW.tenant_no; END;
CREATE TRIGGER tenants_changed AFTER UPDATE ON tenants WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE tenants SET revision = (SELECT revision FROM config_revision) WHERE tenant_no = NEW.tenant_no; END;
CREATE TRIGGER tenant_keys_created AFTER INSERT ON tenant_keys WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE tenant_keys SET revision = (SELECT revision FROM config_revision) WHERE tenant_no = NEW.tenant_no AND version = NEW.version; END;
CREATE TRIGGER sources_created AFTER INSERT ON sources WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE sources SET revision = (SELECT revision FROM config_revision) WHERE source_no = NEW.source_no; END;
CREATE TRIGGER sources_changed AFTER UPDATE ON sources WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE sources SET revision = (SELECT revision FROM config_revision) WHERE source_no = NEW.source_no; END;
CREATE TRIGGER secrets_created AFTER INSERT ON secrets WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE secrets SET revision = (SELECT revision FROM config_revision) WHERE secret_no = NEW.secret_no; END;
CREATE TRIGGER secrets_changed AFTER UPDATE ON secrets WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE secrets SET revision = (SELECT revision FROM config_revision) WHERE secret_no = NEW.secret_no; END;
CREATE TRIGGER subscriptions_created AFTER INSERT ON subscriptions WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE subscriptions SET revision = (SELECT revision FROM config_revision) WHERE subscription_no = NEW.subscription_no; END;
CREATE TRIGGER subscriptions_changed AFTER UPDATE ON subscriptions WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE subscriptions SET revision = (SELECT revision FROM config_revision) WHERE subscription_no = NEW.subscription_no; END;
CREATE TRIGGER grants_created AFTER INSERT ON grants WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE grants SET revision = (SELECT revision FROM config_revision) WHERE grant_no = NEW.grant_no; END;
CREATE TRIGGER grants_changed AFTER UPDATE ON grants WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE grants SET revision = (SELECT revision FROM config_revision) WHERE grant_no = NEW.grant_no; END;
CREATE TRIGGER freed_names_created AFTER INSERT ON freed_names WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE freed_names SET revision = (SELECT revision FROM config_revision) WHERE kind = NEW.kind AND name = NEW.name; END;
CREATE TRIGGER freed_names_changed AFTER UPDATE ON freed_names WHEN NEW.revision < (SELECT revision FROM config_revision)
BEGIN UPDATE freed_names SET revision = (SELECT revision FROM config_revision) WHERE kind = NEW.kind AND name = NEW.name; END;

CREATE TRIGGER tenants_deleted AFTER DELETE ON tenants
BEGIN
    INSERT OR IGNORE INTO config_tombstones (revision, kind, no, deleted_at)
    SELECT revision, 'tenant', OLD.tenant_no, CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER) FROM config_revision;
END;
CREATE TRIGGER tenant_keys_deleted AFTER DELETE ON tenant_keys
BEGIN
    INSERT OR IGNORE INTO config_tombstones (revision, kind, no, deleted_at)
    SELECT revision, 'tenant_keys', OLD.tenant_no, CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER) FROM config_revision;
END;
CREATE TRIGGER sources_deleted AFTER DELETE ON sources
BEGIN
    INSERT OR IGNORE INTO config_tombstones (revision, kind, no, deleted_at)
    SELECT revision, 'source', OLD.source_no, CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER) FROM config_revision;
END;
CREATE TRIGGER secrets_deleted AFTER DELETE ON secrets
BEGIN
    INSERT OR IGNORE INTO config_tombstones (revision, kind, no, deleted_at)
    SELECT revision, 'secret', OLD.secret_no, CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER) FROM config_revision;
END;
CREATE TRIGGER subscriptions_deleted AFTER DELETE ON subscriptions
BEGIN
    INSERT OR IGNORE INTO config_tombstones (revision, kind, no, deleted_at)
    SELECT revision, 'subscription', OLD.subscription_no, CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER) FROM config_revision;
END;
CREATE TRIGGER grants_deleted AFTER DELETE ON grants
BEGIN
    INSERT OR IGNORE INTO config_tombstones (revision, kind, no, deleted_at)
    SELECT revision, 'grant', OLD.grant_no, CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER) FROM config_revision;
END;
CREATE TRIGGER tenants_marked AFTER UPDATE OF deleted_at ON tenants WHEN OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO config_tombstones (revision, kind, no, deleted_at)
    SELECT revision, 'tenant', OLD.tenant_no, CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER) FROM config_revision;
END;
CREATE TRIGGER sources_marked AFTER UPDATE OF deleted_at ON sources WHEN OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO config_tombstones (revision, kind, no, deleted_at)
    SELECT revision, 'source', OLD.source_no, CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER) FROM config_revision;
END;

-- The tombstones of the day before go with the next one.
CREATE TRIGGER config_tombstones_swept AFTER INSERT ON config_tombstones
BEGIN
    UPDATE config_revision SET forgotten = max(forgotten, coalesce((
        SELECT max(revision) FROM config_tombstones WHERE deleted_at < NEW.deleted_at - 86400000000), 0));
    DELETE FROM config_tombstones WHERE deleted_at < NEW.deleted_at - 86400000000;
END;

-- Which subscriptions a grant names is part of the grant.
CREATE TRIGGER grant_subscriptions_created AFTER INSERT ON grant_subscriptions
BEGIN UPDATE grants SET revision = (SELECT revision FROM config_revision) WHERE grant_no = NEW.grant_no; END;
CREATE TRIGGER grant_subscriptions_deleted AFTER DELETE ON grant_subscriptions
BEGIN UPDATE grants SET revision = (SELECT revision FROM config_revision) WHERE grant_no = OLD.grant_no; END;
