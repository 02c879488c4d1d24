//! The conformance suite: what every store must do, as cases that drive nothing but the traits.
//!
//! An implementation writes a [`Database`] and a function that makes a fresh one, and lets [`crate::conformance!`] make a
//! test of each case. Cases own their database; they never sleep, they wait for a condition up to [`PATIENCE`]. Visible
//! differences between implementations are bugs; the only allowed one is [`Database::is_exclusive`].

#![allow(missing_docs, reason = "the names of cases are sentences")]

pub mod accept;
pub mod audit;
pub mod changes;
pub mod config;
pub mod fixture;
pub mod freed;
pub mod grants;
pub mod hints;
pub mod history;
pub mod keys;
pub mod lanes;
pub mod limits;
pub mod log;
pub mod parked;
pub mod rejections;
pub mod replicas;
pub mod requests;
pub mod revocation;
pub mod room;
pub mod schema;
pub mod scopes;
pub mod secret_life;
pub mod secret_uses;
pub mod secrets;
pub mod sessions;
pub mod settings;
pub mod shares;
pub mod sources;
pub mod unseen;

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use portero_types::Shard;

use crate::{DynStore, Error, ErrorKind};

/// How long a case waits for something that must come to pass.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A database that one case has for itself. It is removed when this value is dropped.
#[async_trait]
pub trait Database: Send + Sync {
    /// Opens the database, without migrating it. Called again, it opens it as another process would; an exclusive store
    /// answers with the same handle.
    async fn open(&self) -> DynStore;

    /// Whether one process owns the database alone, so that opening a session fences every other one.
    fn is_exclusive(&self) -> bool;

    /// Runs one statement past the store, for cases about damage. The migrations that ran are rows of
    /// `_sqlx_migrations(version, success, …)`.
    async fn execute(&self, statement: &'static str);

    /// Whether one statement past the store succeeds, for cases about what the database itself refuses.
    async fn try_execute(&self, statement: &'static str) -> bool;

    /// Statements of this kind of database alone that would take rows out of the audit log, if they were let.
    fn audit_loopholes(&self) -> &'static [&'static str];

    /// Loses a shard's entries above a position, which is its head then, as a restored log would have.
    async fn rewind_log(&self, shard: Shard, head: u64);

    /// Drops a shard's entries up to and including a position, as retention does.
    async fn forget_log(&self, shard: Shard, through: u64);
}

/// Makes a test of each case. Its argument is a path to an `async fn() -> impl Database` that makes a fresh one; the path
/// begins with `crate::`, because each aggregate's tests are a module.
///
/// The caller needs `tokio` with `macros` and `rt-multi-thread` among its dev-dependencies.
#[macro_export]
macro_rules! conformance {
    ($fresh:path) => {
        $crate::conformance!(@cases $fresh, accept: [
            a_new_event_gets_a_receipt_an_event_and_a_log_entry,
            the_same_bytes_again_are_a_duplicate_of_the_first,
            other_bytes_under_the_same_id_are_a_conflict_and_the_first_stays,
            a_key_twice_in_one_batch_is_accepted_once,
            new_and_known_events_of_a_batch_get_their_own_verdicts,
            a_batch_may_touch_every_shard,
            order_within_a_shard_follows_the_batch,
            sixty_four_identical_accepts_at_once_make_one_receipt,
            overlapping_batches_in_opposite_order_all_finish,
            tenants_and_providers_keep_equal_ids_apart,
            sealed_contents_are_kept_byte_for_byte,
            texts_are_kept_up_to_their_limits,
            a_refused_event_takes_its_batch_along_but_not_its_neighbours_alone,
            an_empty_batch_is_nothing,
            repeats_are_counted_on_the_receipt,
            repeats_that_were_recognised_before_are_counted_too,
            receipts_are_found_only_by_their_tenant,
            the_largest_request_fits_one_batch,
        ]);
        $crate::conformance!(@cases $fresh, log: [
            an_empty_log_has_a_head_of_zero_in_each_shard,
            an_entry_says_what_routes_its_event,
            pages_walk_the_log_in_order_and_know_the_head,
            pages_never_miss_an_entry_while_writers_run,
            entries_are_found_at_their_positions,
            events_are_found_by_their_receipts,
        ]);
        $crate::conformance!(@cases $fresh, config: [
            every_change_raises_the_revision,
            tenants_are_created_read_and_deleted,
            sources_are_created_read_and_deleted,
            lists_come_in_the_order_of_names_page_by_page,
            lists_show_nothing_of_other_tenants,
            a_tenant_in_use_is_not_deleted,
            a_deleted_name_may_be_used_again,
            an_ingest_key_belongs_to_one_source,
            events_outlive_their_source_and_tenant,
            subscriptions_read_back_as_they_were_created,
            a_subscriptions_update_changes_what_is_given_and_nothing_else,
            a_subscription_needs_a_lane_for_each_shard,
            a_subscription_begins_at_the_head_or_at_the_oldest_event,
            a_deleted_subscription_takes_its_lanes_along,
            the_snapshot_holds_what_is_live,
            creating_one_name_at_once_succeeds_once,
        ]);
        $crate::conformance!(@cases $fresh, audit: [
            every_change_is_an_entry,
            a_secret_that_ends_others_is_an_entry_for_each,
            an_entry_says_who_asked_by_which_request_and_when,
            an_entry_keeps_why_it_was_asked_for,
            before_and_after_of_an_entry_follow_each_other,
            no_secret_and_no_ingest_key_is_in_an_entry,
            a_change_that_failed_is_no_entry,
            changes_and_deeds_at_once_make_one_chain,
            entries_are_neither_altered_nor_deleted,
            entries_are_found_by_tenant_subject_and_action,
            a_tenants_entries_are_not_those_of_the_next_one_of_its_name,
            texts_beyond_their_bounds_are_refused_and_longest_ones_kept,
            an_unseen_secret_that_was_taken_is_an_entry,
        ]);
        $crate::conformance!(@cases $fresh, grants: [
            grants_are_created_read_and_deleted,
            grants_come_in_the_order_of_names_page_by_page,
            a_grant_of_what_does_not_exist_is_refused,
            a_tenant_takes_its_grants_along,
            a_subscription_leaves_the_grants_that_name_it,
            grants_are_bounded_for_each_tenant_and_for_the_platform,
            what_became_anothers_is_not_changed_by_who_was_allowed_to_before,
        ]);
        $crate::conformance!(@cases $fresh, room: [
            subscriptions_are_bounded_for_each_tenant,
            a_tenants_own_recipes_have_so_many_bytes_together,
        ]);
        $crate::conformance!(@cases $fresh, freed: [
            a_name_that_is_given_up_is_remembered_with_the_last_time,
            an_erased_tenant_gives_up_its_name_and_its_subscriptions_theirs,
            a_deletion_that_is_refused_gives_up_no_name,
        ]);
        $crate::conformance!(@cases $fresh, keys: [
            a_tenants_data_key_is_made_with_it_and_outlives_it,
            data_keys_are_read_of_the_tenants_that_are_asked_for,
            uses_and_pages_say_what_is_wrapped_under_which_key,
            wrapping_again_replaces_what_is_still_as_it_was_and_raises_no_revision,
            a_further_data_key_is_added_once_and_raises_the_revision,
            a_tenant_has_sixteen_data_keys_at_most,
            resealing_replaces_what_is_still_as_it_was,
            erasing_destroys_keys_secrets_rejections_and_sources_at_once,
            erasing_a_deleted_name_takes_all_of_them_and_no_living_one,
            an_erased_tenants_events_say_so,
        ]);
        $crate::conformance!(@cases $fresh, secrets: [
            secrets_are_added_read_and_deleted,
            rotation_ends_the_others_that_have_no_end_yet,
            too_many_secrets_active_at_one_moment_are_refused,
            secrets_that_never_overlap_are_not_counted_together,
            a_source_keeps_so_many_secrets_and_no_more,
            sixteen_secrets_added_at_once_stay_within_the_limit,
            the_snapshot_forgets_secrets_a_day_after_their_end,
        ]);
        $crate::conformance!(@cases $fresh, secret_life: [
            a_secrets_end_is_set_moved_and_never_undone,
            an_end_that_would_let_too_many_verify_is_refused,
            a_rotation_leaves_planned_ended_and_revoked_secrets_alone,
            a_rotation_that_begins_in_the_past_ends_what_verifies_now,
            a_revocation_is_seen_and_final,
            a_revoked_secret_makes_room_for_another,
            only_a_secret_that_does_not_verify_is_deleted,
            secrets_are_revoked_by_their_full_name_only,
        ]);
        $crate::conformance!(@cases $fresh, secret_uses: [
            uses_are_added_up_by_day_and_secret,
            old_days_of_use_are_forgotten_and_the_sum_is_not,
            a_secret_that_ends_soon_and_is_in_use_is_found,
        ]);
        $crate::conformance!(@cases $fresh, revocation: [
            what_a_revoked_secret_verified_is_refused_and_its_neighbours_are_not,
            an_accepted_event_that_comes_again_under_a_revoked_secret_is_refused,
            a_key_of_one_batch_is_accepted_under_the_secret_that_is_good,
            a_deleted_secret_accepts_no_more_than_a_revoked_one,
            a_deleted_source_accepts_nothing_and_its_neighbours_go_on,
            an_erased_tenants_sources_accept_nothing,
            that_a_secret_was_revoked_is_remembered_longer_than_anything_can_be_under_way,
            nothing_is_accepted_after_a_revocation_has_settled,
        ]);
        $crate::conformance!(@cases $fresh, sources: [
            an_update_changes_what_is_given_and_nothing_else,
            an_update_raises_the_revision_and_a_refused_one_does_not,
            a_source_beyond_its_bounds_is_refused,
            another_tenants_source_is_not_updated,
            a_handshake_brings_the_secret_exactly_once,
            a_source_that_does_not_wait_takes_no_secret,
            a_secret_that_is_given_ends_the_wait_for_one,
            a_refused_handshake_secret_leaves_the_source_waiting,
        ]);
        $crate::conformance!(@cases $fresh, settings: [
            secret_settings_are_kept_and_changed_one_by_one,
            secret_settings_beyond_their_bounds_are_refused,
            that_a_secret_setting_was_given_anew_is_in_the_audit_log_and_its_value_is_not,
            secret_settings_are_sealed_again_where_they_are_as_they_were,
            secret_settings_go_with_their_source,
        ]);
        $crate::conformance!(@cases $fresh, limits: [
            a_tenants_update_changes_what_is_given_and_nothing_else,
            a_source_has_limits_of_its_own,
            limits_beyond_their_bounds_are_refused,
        ]);
        $crate::conformance!(@cases $fresh, unseen: [
            only_what_a_handshake_brought_is_unseen_and_it_is_taken_once,
            of_twenty_who_take_one_unseen_secret_one_gets_it,
            an_unseen_secret_is_taken_by_its_full_name_only,
        ]);
        $crate::conformance!(@cases $fresh, rejections: [
            a_rejection_reads_back_with_its_sealed_capture,
            the_newest_fifty_of_a_source_are_kept,
            rejections_recorded_at_once_stay_within_the_bound,
            rejections_are_listed_newest_first_page_by_page,
            rejections_show_nothing_of_other_tenants,
            rejections_go_with_their_source,
            a_rejection_recorded_twice_is_there_once,
            odd_texts_never_make_recording_fail,
            a_sweep_forgets_the_oldest_and_no_more_than_asked,
        ]);
        $crate::conformance!(@cases $fresh, changes: [
            applying_changes_leads_from_any_revision_to_what_there_is,
            a_change_is_as_large_as_what_it_changes,
            a_secret_that_is_long_over_is_gone_by_its_change,
            what_is_too_old_or_of_another_history_is_answered_with_everything,
        ]);
        $crate::conformance!(@cases $fresh, replicas: [
            a_report_is_told_the_revision_and_the_databases_clock,
            what_a_replica_has_applied_is_seen_at_once,
            replicas_that_signed_off_are_gone,
            a_silent_replica_is_no_longer_live_and_takes_no_share,
            replicas_gone_for_a_day_are_swept,
            a_process_takes_the_place_of_an_older_one_of_its_name,
            two_live_processes_of_one_name_are_both_there,
            what_a_process_says_first_may_be_said_again,
        ]);
        $crate::conformance!(@cases $fresh, sessions: [
            a_claim_takes_every_free_lane_once,
            lanes_of_a_live_session_are_not_claimable,
            closing_a_session_frees_its_lanes,
            releasing_lanes_frees_those_of_one_subscription,
            a_new_session_of_an_instance_fences_the_older,
            an_exclusive_store_fences_every_older_session,
            an_expired_session_loses_its_lanes_to_the_next,
            an_expired_session_that_lost_nothing_may_be_renewed,
            a_fenced_session_writes_nothing,
            an_unknown_session_is_fenced,
            a_takeover_finds_the_last_progress_under_a_higher_epoch,
            claims_at_once_never_share_a_lane,
        ]);
        $crate::conformance!(@cases $fresh, lanes: [
            a_new_lane_begins_where_its_subscription_does,
            the_last_flush_is_what_the_next_owner_finds,
            a_flush_sent_twice_counts_once,
            an_overtaken_flush_changes_nothing,
            a_watermark_never_falls,
            a_flush_under_an_old_epoch_is_missing_in_the_answer,
            lanes_flushed_together_are_written_together,
            acked_positions_that_do_not_rise_are_refused,
            a_long_acked_list_reads_back,
            five_hundred_flushes_leave_the_last_state,
        ]);
        $crate::conformance!(@cases $fresh, parked: [
            parked_entities_read_back_whole,
            a_parked_entity_is_replaced_as_a_whole,
            an_overflow_reads_back_with_and_without_listed_positions,
            detours_are_part_of_the_progress,
            expired_events_are_counted_once_for_each_flush,
            many_entities_with_long_lists_are_written_in_one_flush,
            an_entity_may_leave_and_return_in_one_flush,
            a_thousand_waiting_positions_read_back,
            deferred_events_read_back_until_settled,
            dead_letters_are_listed_page_by_page,
            a_dead_letter_written_twice_is_there_once,
            reasons_never_make_a_flush_fail,
            a_refused_flush_writes_no_part_of_itself,
        ]);
        $crate::conformance!(@cases $fresh, shares: [
            a_session_alone_is_due_every_lane,
            a_weight_of_zero_claims_nothing,
            lanes_are_released_one_by_one,
            releasing_every_lane_gives_the_weight_up,
            sessions_divide_lanes_by_their_weights,
            sessions_that_are_gone_count_for_nothing,
            many_sessions_come_to_one_division,
            a_roll_shows_each_subscription_of_a_session,
            only_the_living_attend_what_is_there,
            the_newest_stream_of_an_instance_replaces_the_others,
        ]);
        $crate::conformance!(@cases $fresh, hints: [
            everybody_who_listens_is_told,
            a_thousand_hints_nobody_takes_lose_neither_kind,
            a_wait_that_is_given_up_loses_no_hint,
            a_change_of_configuration_is_told,
            changes_of_lanes_are_told,
        ]);
        $crate::conformance!(@cases $fresh, requests: [
            a_request_reaches_the_owner_of_its_lane_once,
            the_newest_request_for_an_entity_wins,
            a_request_waits_for_an_owner,
            a_request_for_nothing_is_refused,
            parked_entities_are_listed_page_by_page,
            a_listing_finds_the_entry_in_its_lanes_shard,
        ]);
        $crate::conformance!(@cases $fresh, scopes: [
            a_scope_of_nothing_is_everything,
            a_scope_is_of_one_tenant,
            a_scope_is_of_some_sources,
            a_scope_is_of_one_entity_or_of_some_slots,
            a_scope_ends_where_it_is_told_to,
            conditions_of_a_scope_hold_together,
            a_page_reaches_no_further_than_its_head,
        ]);
        $crate::conformance!(@cases $fresh, history: [
            a_generation_is_raised_once_for_all_who_saw_the_loss,
            the_same_database_is_the_same_incarnation,
            progress_beyond_the_head_is_cut_under_a_new_generation,
            events_after_a_restored_log_are_not_taken_for_settled,
            progress_beyond_the_head_is_cut_before_lost_positions_are_given_again,
            a_start_beyond_the_head_is_cut_once,
            entries_that_retention_dropped_are_no_loss,
        ]);
        $crate::conformance!(@cases $fresh, schema: [
            a_new_database_is_empty_until_it_is_migrated,
            migrating_again_changes_nothing,
            concurrent_migrations_wait_for_each_other,
            a_schema_ahead_is_told_and_left_alone,
            a_schema_behind_is_told,
            an_interrupted_migration_is_told_and_left_alone,
            a_migrated_database_can_commit,
            a_database_has_one_identity,
            a_new_log_is_of_the_first_generation,
        ]);
    };
    (@cases $fresh:path, $module:ident: [$($case:ident),* $(,)?]) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let database = $fresh().await;
                    $crate::testing::$module::$case(&database).await;
                }
            )*
        }
    };
}

/// Opens and migrates.
///
/// # Panics
/// When the store cannot be migrated.
pub async fn migrated(database: &dyn Database) -> DynStore {
    let store = database.open().await;
    store.migrate().await.expect("a new database can be migrated");
    store
}

/// Tries until there is an answer.
///
/// # Panics
/// When there is none after [`PATIENCE`].
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut attempt: impl FnMut() -> F) -> T {
    let tries = async {
        loop {
            if let Some(answer) = attempt().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, tries).await {
        Ok(answer) => answer,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// Asserts the kind of a failure.
///
/// # Panics
/// When the call succeeded or failed otherwise.
#[track_caller]
pub fn assert_fails<T: std::fmt::Debug>(outcome: Result<T, Error>, kind: ErrorKind) {
    match outcome {
        Ok(value) => panic!("expected {kind:?}, got {value:?}"),
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_macro_names_every_case() {
        let listed = include_str!("mod.rs");
        for (module, source) in [
            ("accept", include_str!("accept.rs")),
            ("audit", include_str!("audit.rs")),
            ("config", include_str!("config.rs")),
            ("grants", include_str!("grants.rs")),
            ("hints", include_str!("hints.rs")),
            ("history", include_str!("history.rs")),
            ("lanes", include_str!("lanes.rs")),
            ("log", include_str!("log.rs")),
            ("parked", include_str!("parked.rs")),
            ("rejections", include_str!("rejections.rs")),
            ("requests", include_str!("requests.rs")),
            ("schema", include_str!("schema.rs")),
            ("scopes", include_str!("scopes.rs")),
            ("secrets", include_str!("secrets.rs")),
            ("sessions", include_str!("sessions.rs")),
            ("shares", include_str!("shares.rs")),
            ("sources", include_str!("sources.rs")),
            ("unseen", include_str!("unseen.rs")),
        ] {
            let names = source.lines().filter_map(|line| line.strip_prefix("pub async fn "));
            for name in names.filter_map(|rest| rest.split('(').next()) {
                assert!(listed.contains(&format!(" {name},")), "{module}::{name} is not in the macro");
            }
        }
    }
}
