//! Everything the store's contract promises, one case for each promise, run on every adapter (INV-9).
//!
//! A case is an async function over a [`Fixture`](crate::Fixture): a fresh store with a hand-driven clock. The list
//! in [`queue_conformance!`](crate::queue_conformance) names each case once, so that none can be forgotten for one
//! store. The rules are numbered in `stargate_queue::store`.

mod prelude;

#[doc(hidden)]
pub mod access;
#[doc(hidden)]
pub mod audit;
#[doc(hidden)]
pub mod bad_input;
#[doc(hidden)]
pub mod bulk;
#[doc(hidden)]
pub mod cancel;
#[doc(hidden)]
pub mod claim_order;
#[doc(hidden)]
pub mod delay;
#[doc(hidden)]
pub mod dependencies;
#[doc(hidden)]
pub mod directive_batches;
#[doc(hidden)]
pub mod directive_kept;
#[doc(hidden)]
pub mod directive_runs;
#[doc(hidden)]
pub mod directive_tables;
#[doc(hidden)]
pub mod directive_values;
#[doc(hidden)]
pub mod enqueue;
#[doc(hidden)]
pub mod events;
#[doc(hidden)]
pub mod fairness;
#[doc(hidden)]
pub mod fence;
#[doc(hidden)]
pub mod git;
#[doc(hidden)]
pub mod heads;
#[doc(hidden)]
pub mod leadership;
#[doc(hidden)]
pub mod lease;
#[doc(hidden)]
pub mod limits;
#[doc(hidden)]
pub mod links;
#[doc(hidden)]
pub mod listing;
#[doc(hidden)]
pub mod once;
#[doc(hidden)]
pub mod overview;
#[doc(hidden)]
pub mod pause;
#[doc(hidden)]
pub mod purge;
#[doc(hidden)]
pub mod recovery;
#[doc(hidden)]
pub mod repositories;
#[doc(hidden)]
pub mod retry;
#[doc(hidden)]
pub mod schedule;
#[doc(hidden)]
pub mod settle;
#[doc(hidden)]
pub mod unique;
#[doc(hidden)]
pub mod workers;

/// Makes one `#[tokio::test]` of every case. `open` is the path from the crate's root of an async function that
/// gives a fresh [`Fixture`](crate::Fixture):
///
/// ```text
/// mod sqlite {
///     stargate_testkit::queue_conformance!(crate::open_sqlite);
/// }
/// ```
#[macro_export]
macro_rules! queue_conformance {
    ($open:path) => {
        $crate::queue_conformance! { @tests $open;
            enqueue: [
                an_accepted_job_reads_back_as_it_was_given,
                an_accepted_job_is_seen_by_another_process,
                an_accepted_job_outlives_its_process,
                ids_rise_in_the_order_of_the_batch,
                an_empty_batch_is_accepted_and_changes_nothing,
                a_batch_with_one_unknown_kind_is_refused_whole,
                a_batch_with_one_bad_value_is_refused_whole,
                a_batch_with_one_unknown_parent_is_refused_whole,
                an_unknown_kind_is_refused_naming_the_known_ones,
                a_kind_registered_by_another_process_is_known_here,
                a_kind_registered_again_gets_the_new_values,
                a_job_without_max_attempts_gets_those_of_its_kind,
                jobs_of_one_batch_keep_what_sets_them_apart,
                a_batch_of_five_thousand_is_accepted_in_order,
                many_producers_at_once_lose_nothing,
                an_enqueue_wakes_sleepers_of_this_process,
                an_enqueue_wakes_sleepers_of_another_process,
            ],
            unique: [
                a_held_unique_key_answers_the_waiting_job,
                a_held_unique_key_answers_the_running_job,
                a_held_unique_key_answers_the_delayed_and_the_blocked_job,
                a_unique_key_is_free_again_after_each_way_to_finish,
                a_unique_key_stays_held_through_retry_release_and_recovery,
                the_same_unique_key_twice_in_one_batch_is_one_job,
                the_first_of_a_batch_gets_the_unique_key_though_it_has_parents,
                a_batch_may_mix_held_and_free_unique_keys,
                racing_producers_of_one_unique_key_make_one_job,
                racing_producers_in_two_processes_of_many_unique_keys_make_one_job_each,
                a_failed_job_whose_unique_key_is_held_by_another_is_not_retried,
            ],
            once: [
                a_repeated_request_gets_the_first_answer,
                a_repeated_request_gets_the_first_answer_after_the_job_has_ended,
                the_same_key_for_another_request_is_a_conflict,
                an_idempotency_key_holds_just_under_a_day,
                an_idempotency_key_is_free_after_a_day,
                a_refused_request_does_not_use_up_its_key,
                a_once_request_answers_the_holder_of_a_unique_key,
                racing_requests_with_one_key_make_one_set_of_jobs,
            ],
            dependencies: [
                a_child_waits_for_all_of_its_parents,
                a_child_is_released_once_when_its_parents_finish_in_one_batch,
                a_child_is_released_when_its_parents_finish_at_the_same_time,
                a_done_parent_is_satisfied_at_once,
                a_parent_named_twice_counts_once,
                a_failed_parent_fails_its_child,
                a_cancelled_parent_fails_its_child,
                a_parent_cancelled_by_its_worker_fails_its_child,
                a_parent_lost_with_its_workers_fails_its_child,
                a_failure_cascades_through_generations,
                a_diamond_below_a_failure_fails_once,
                a_child_of_a_failed_or_cancelled_parent_is_accepted_and_failed,
                a_child_of_a_done_and_a_failed_parent_fails,
                a_child_waits_through_its_parents_retries,
                a_released_child_waits_for_its_due_time_too,
                parents_are_told_with_their_states,
                children_enqueued_while_their_parent_finishes_always_run,
            ],
            claim_order: [
                a_claimed_job_tells_what_is_to_be_done,
                a_claim_makes_the_job_processing,
                the_second_worker_gets_nothing,
                racing_workers_never_get_the_same_job,
                higher_priority_runs_first,
                earlier_due_time_runs_first_within_a_priority,
                the_order_holds_across_queues_and_kinds,
                a_claim_gives_no_more_than_asked_for,
                a_claim_of_no_jobs_gives_none,
                slots_bound_each_kind,
                only_served_kinds_are_given_out,
                only_served_queues_are_given_out,
                each_claim_has_its_own_token,
                the_attempt_is_counted_at_each_claim_once,
                a_lane_made_by_another_process_is_served_here,
                many_unserved_jobs_do_not_hide_a_served_one,
            ],
            delay: [
                a_delayed_job_is_not_given_out_before_its_time,
                a_delayed_job_is_given_out_exactly_at_its_time,
                a_job_may_name_the_instant,
                a_due_time_just_past_is_due_now,
                a_due_time_far_past_is_refused,
                delayed_jobs_come_in_the_order_of_their_due_times,
                a_delayed_job_of_higher_priority_overtakes_once_due,
                a_sooner_job_enqueued_after_a_later_one_is_not_forgotten,
                a_sooner_job_enqueued_by_another_process_is_not_forgotten,
                a_clock_that_jumps_back_gives_nothing_out_early,
                a_job_enqueued_before_the_clock_jumped_back_still_comes,
                no_attempt_starts_before_its_job_is_due,
                the_next_look_is_the_next_due_time,
                there_is_no_next_look_when_nothing_waits,
            ],
            pause: [
                a_paused_queue_is_left_alone_and_others_flow,
                a_paused_kind_is_left_alone_in_every_queue,
                a_queue_and_a_kind_of_the_same_name_are_paused_apart,
                a_job_paused_twice_over_waits_for_both,
                pausing_twice_is_pausing_once,
                resuming_what_was_not_paused_says_so,
                running_jobs_of_a_paused_queue_finish,
                a_pause_by_another_process_holds_here,
                an_expired_job_of_a_paused_queue_is_recovered_but_waits,
                paused_queues_are_told_in_the_counts,
            ],
            lease: [
                beats_keep_a_job_for_longer_than_its_lease,
                one_beat_keeps_every_job_of_the_worker,
                a_job_is_kept_until_its_lease_ends,
                a_late_beat_does_not_save_a_lease_that_nobody_took,
                a_late_beat_recovers_however_many_jobs_there_are,
                a_late_beat_keeps_the_leases_that_have_not_run_out,
                a_late_beat_ends_a_job_that_an_operator_wants_to_end,
                cancellations_are_told_without_a_beat,
                a_late_claim_saves_nothing_and_gives_full_leases,
                racing_beats_of_one_worker_after_its_lease_recover_its_jobs_once,
                an_execution_holds_its_job_until_its_lease_ends,
                an_execution_that_has_ended_holds_nothing,
                a_worker_given_up_is_told_so,
                a_worker_nobody_registered_is_told_so,
                each_job_has_the_lease_its_kind_was_claimed_with,
                leases_survive_a_clock_that_jumps_back,
                a_lease_ends_after_the_clock_has_jumped_back_and_forth,
                the_next_look_is_the_next_lease_end_of_another_worker,
                owned_lists_what_is_held,
            ],
            recovery: [
                an_expired_job_is_given_to_anybodys_next_claim,
                an_expired_job_is_recovered_through_another_process,
                a_claim_recovers_though_it_serves_none_of_the_kinds,
                the_timeline_of_a_recovery_tells_it_before_the_second_attempt,
                the_worker_that_lost_its_job_changes_nothing,
                an_outcome_that_comes_after_the_lease_is_not_taken_and_the_job_runs_again,
                a_job_that_takes_its_workers_down_is_failed,
                crashes_are_counted_apart_from_failures,
                a_crash_in_the_last_attempt_exhausts_the_retries,
                a_crash_that_is_both_the_last_attempt_and_the_last_crash_is_a_lost_worker,
                a_job_to_be_cancelled_whose_worker_died_is_cancelled,
                racing_rescuers_recover_each_job_once,
            ],
            fence: [
                every_write_with_a_forged_fence_is_stale,
                every_write_after_the_end_is_stale,
                every_write_after_the_attempt_is_stale,
                the_attempt_number_given_back_does_not_let_an_old_fence_in,
                every_write_about_a_recovered_job_by_its_old_worker_is_stale,
                every_write_after_the_lease_is_stale_though_nobody_took_the_job,
                each_settlement_of_a_batch_is_judged_by_its_own_lease,
                a_retried_job_does_not_know_its_old_fence,
                each_settlement_of_a_batch_is_judged_by_itself,
                the_first_of_two_settlements_of_one_execution_wins,
                racing_settlements_of_one_execution_have_one_winner,
            ],
            settle: [
                done_ends_the_job_with_its_result,
                done_without_result_has_none,
                failed_ends_the_job_with_its_error,
                retry_makes_the_job_due_after_its_delay,
                retry_without_delay_is_claimable_at_once,
                a_success_after_a_failure_shows_no_error,
                cancelled_ends_the_job,
                a_released_job_has_never_been_started,
                a_released_second_attempt_gives_back_only_itself,
                an_aborted_job_gets_its_attempt_back_and_keeps_the_trace,
                a_released_job_keeps_its_place,
                a_batch_may_mix_every_outcome,
                an_empty_settlement_is_answered_by_nothing,
                a_thousand_executions_end_in_one_batch,
                an_error_text_with_nul_does_not_stand_in_the_way_of_its_end,
            ],
            events: [
                the_timeline_of_a_success,
                the_timeline_of_a_failure_tells_its_error,
                the_timeline_of_a_retry_tells_why_and_for_how_long,
                an_event_that_becomes_a_row_keeps_its_text,
                notes_stand_between_start_and_end,
                several_notes_of_one_job_in_one_batch_keep_their_order,
                a_stale_note_in_a_batch_leaves_no_gap,
                progress_is_kept_on_the_job_and_handed_to_the_next_attempt,
                a_note_may_carry_both_progress_and_event,
                notes_of_earlier_attempts_stay_in_their_place,
                a_timeline_is_read_in_pages,
                a_job_that_is_not_there_has_no_timeline,
                racing_notes_leave_no_gap,
            ],
            limits: [
                a_key_runs_no_more_than_its_concurrency,
                a_full_key_does_not_hold_up_others,
                a_keys_concurrency_holds_across_queues_and_kinds,
                a_kind_without_slots_does_not_use_up_a_keys_room,
                every_way_to_end_an_execution_frees_its_place,
                a_recovered_job_frees_its_place,
                stale_settlements_do_not_free_a_place,
                racing_claimers_never_exceed_a_keys_concurrency,
                a_rate_lets_its_count_start_at_once_and_then_by_the_clock,
                a_rate_does_not_save_up_more_than_its_count,
                a_rate_counts_starts_not_ends,
                a_rate_survives_a_clock_that_jumps_back,
                the_next_look_is_the_next_start_a_rate_allows,
                the_most_specific_limit_holds,
                a_limit_set_later_holds_for_waiting_jobs,
                a_removed_limit_holds_no_more,
                a_limit_removed_uncovers_the_wider_one,
                a_limit_set_by_another_process_holds_here,
                a_key_nobody_used_has_no_state,
                an_impossible_limit_is_refused,
            ],
            fairness: [
                weights_of_one_and_three_share_one_to_three_in_single_claims,
                weights_of_one_and_three_share_one_to_three_in_one_batch,
                keys_without_a_limit_share_evenly,
                jobs_without_key_share_as_one_more_key,
                an_idle_key_does_not_hoard_credit,
                a_new_key_neither_starves_nor_takes_everything,
                priority_goes_before_fairness,
                within_a_key_the_order_is_due_time_then_id,
                a_fair_share_leaves_no_place_empty,
                many_keys_are_all_served,
            ],
            cancel: [
                a_waiting_job_ends_at_once,
                a_delayed_and_a_blocked_job_end_at_once,
                a_running_job_is_cancelled_through_its_worker,
                asking_twice_is_asking_once,
                a_job_that_finishes_before_it_hears_is_done,
                a_cancelled_running_job_is_never_run_again,
                a_finished_job_cannot_be_cancelled,
                a_job_that_is_not_there_cannot_be_cancelled,
                a_cancelled_waiting_job_frees_the_unique_key,
                racing_cancel_and_claim_agree,
            ],
            retry: [
                a_failed_job_runs_again_with_its_history,
                a_retried_job_gets_as_many_further_attempts_as_it_had,
                a_job_can_be_retried_again_and_again,
                only_failed_jobs_can_be_retried,
                a_job_that_is_not_there_cannot_be_retried,
                racing_operators_retry_a_job_once,
                a_job_that_lost_its_workers_can_be_retried_and_survive,
                a_retried_job_keeps_its_limit_key_and_notes,
            ],
            bulk: [
                many_failed_jobs_are_retried_as_each_would_be,
                what_cannot_be_retried_is_left_out_and_stays_as_it_is,
                of_failed_jobs_with_the_same_unique_key_one_is_retried,
                parents_and_children_that_failed_together_are_retried_together,
                many_jobs_are_cancelled_as_each_would_be,
                more_jobs_than_one_call_takes_are_refused_whole,
                racing_operators_retry_each_of_many_jobs_once,
                an_edited_job_runs_again_with_the_other_payload,
                a_large_payload_that_was_replaced_is_known_by_its_hash,
                an_edit_that_cannot_be_is_refused_and_changes_nothing,
            ],
            overview: [
                failed_jobs_are_grouped_by_kind_and_code,
                ends_are_counted_where_they_happened,
                waits_are_told_from_the_due_time_to_the_claim,
                an_activity_that_cannot_be_told_is_refused,
                a_job_that_is_done_has_no_error_of_an_earlier_attempt,
            ],
            schedule: [
                a_schedule_reads_back_as_it_was_put,
                a_schedule_put_again_is_replaced,
                a_schedule_put_again_waits_for_no_instant_twice,
                a_removed_schedule_is_gone,
                an_instant_that_has_come_makes_the_job,
                an_instant_that_has_not_come_makes_nothing,
                an_instant_is_fired_once,
                racing_firers_make_one_job,
                a_schedule_without_a_next_instant_rests,
                nonsense_is_not_put,
            ],
            listing: [
                all_jobs_come_once_newest_first,
                each_filter_gives_exactly_what_fits,
                a_look_for_what_is_rare_ends_and_says_where_to_go_on,
                failed_jobs_with_a_code_are_counted_without_a_look_at_each,
                a_filter_that_cannot_be_meant_is_refused,
                a_listed_job_is_the_job,
                a_page_is_never_larger_than_the_maximum,
                queues_are_counted_by_stage,
                depth_counts_what_could_run_no_further_than_asked,
                the_oldest_ready_job_tells_its_age,
                the_store_tells_the_clocks_time,
                a_reachable_store_says_it_is_well,
            ],
            purge: [
                old_jobs_leave_and_young_ones_stay,
                age_counts_from_the_end_not_from_the_beginning,
                unfinished_jobs_are_never_purged,
                a_purge_takes_no_more_than_its_batch,
                a_purged_job_leaves_nothing_behind,
                a_child_survives_the_purge_of_its_parent,
            ],
            links: [
                an_accepted_item_is_a_job_that_does_not_run_until_it_is_held,
                a_held_item_wakes_sleepers_of_another_process,
                a_batch_with_one_bad_item_is_refused_whole,
                an_item_accepted_again_is_the_same_job_with_the_new_values,
                an_item_whose_job_has_ended_before_it_was_held_is_not_taken,
                a_link_turns_only_forward_and_only_with_its_mark,
                links_are_listed_by_item_page_by_page,
                a_job_with_a_link_is_not_purged,
                racing_processes_make_one_job_of_an_item,
            ],
            leadership: [
                the_first_epoch_is_one_and_each_next_one_higher,
                a_term_reads_back_as_it_began,
                a_term_begins_only_from_the_epoch_its_caller_saw,
                racing_candidates_begin_one_term,
                a_term_that_begins_ends_the_one_before_it_at_that_time,
                a_term_ends_once,
                a_term_that_has_ended_writes_nothing_though_no_other_has_begun,
                terms_do_not_overlap_though_the_clock_jumps_back,
                terms_are_listed_newest_first_and_no_more_than_allowed,
                a_term_without_a_name_or_an_end_without_a_reason_is_refused,
                every_guarded_write_of_a_deposed_leader_is_refused_and_changes_nothing,
                every_guarded_write_of_the_leader_takes_effect,
                a_leader_that_the_store_has_not_heard_of_is_refused,
                what_a_lease_fences_passes_under_any_epoch,
                reading_under_an_epoch_is_the_same,
                a_refused_write_does_not_take_its_neighbours_with_it,
                a_write_that_races_a_new_term_never_commits_after_it,
                a_store_lives_as_long_as_somebody_has_it_under_an_epoch,
            ],
            workers: [
                a_registered_worker_reads_back,
                the_same_name_registered_again_is_another_worker,
                a_worker_tells_what_it_holds_and_when_it_beat,
                a_silent_worker_is_not_alive,
                a_removed_worker_is_not_alive_and_its_beat_says_so,
                the_name_of_a_removed_worker_stays_with_its_jobs,
                a_worker_that_was_given_up_registers_anew_and_works,
                a_worker_that_was_given_up_is_given_nothing,
                a_worker_that_falls_silent_with_nothing_to_do_is_given_up,
                the_jobs_of_a_dead_worker_come_free_although_the_clock_was_set_back,
            ],
            bad_input: [
                each_bad_field_is_refused_by_name,
                a_payload_of_one_mebibyte_is_accepted,
                a_payload_of_one_byte_more_is_refused,
                large_numbers_survive_with_their_value,
                every_shape_of_json_survives,
                unicode_survives_everywhere,
                keys_that_differ_only_in_case_or_accent_are_different,
                a_batch_of_one_thousand_parents_is_accepted,
            ],
        }
    };
    (@tests $open:path; $($topic:ident: $cases:tt,)*) => {
        $($crate::queue_conformance! { @topic $open; $topic $cases })*
    };
    (@topic $open:path; $topic:ident [$($case:ident,)*]) => {
        mod $topic {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let fixture = $open().await;
                    $crate::conformance::$topic::$case(&fixture).await;
                    fixture.close().await;
                }
            )*
        }
    };
}

/// The same for what a store promises about repositories, pushes and tokens; `open` gives a fresh
/// [`Tables`](crate::tables::Tables).
#[macro_export]
macro_rules! tables_conformance {
    ($open:path) => {
        $crate::queue_conformance! { @tests $open;
            git: [
                a_recorded_push_is_an_event_and_a_job_for_each_ref,
                a_push_recorded_again_is_the_same_events_and_no_more_jobs,
                the_same_refs_in_another_receive_are_other_events,
                a_ref_named_twice_in_one_push_is_one_event,
                a_bad_push_changes_nothing,
                racing_reports_of_one_push_make_one_set_of_events,
                racing_pushes_to_one_repository_are_all_recorded,
                a_record_that_is_cut_off_leaves_all_or_nothing,
                a_recorded_push_wakes_workers_of_another_process,
                a_push_of_many_refs_is_recorded_in_order_and_listed_in_pages,
                a_push_of_the_current_leader_is_recorded_with_its_epoch,
                a_push_of_a_deposed_leader_is_refused_whole,
                an_event_is_processed_once,
                a_push_outlives_the_workers_that_it_loses,
                racing_workers_process_an_event_once,
                a_processing_that_is_cut_off_leaves_all_or_nothing,
                an_event_that_is_not_there_is_poison,
                the_default_branch_ends_where_the_last_push_left_it,
                other_refs_do_not_move_the_default_branch,
                another_default_branch_is_unknown_until_its_next_push,
                one_size_job_waits_however_many_pushes_there_were,
                a_size_job_that_runs_already_does_not_count_as_waiting,
            ],
            heads: [
                the_head_of_a_ref_is_the_last_event_that_does_not_tell_of_the_past,
                heads_are_listed_by_ref_page_by_page,
                a_head_follows_its_event_all_or_nothing,
                what_is_missing_is_recorded_once_whoever_finds_it,
                a_hook_that_is_late_finds_its_push_recorded,
                a_hook_that_tells_while_its_push_is_being_found_is_recorded_once,
                a_ref_that_goes_back_and_forth_is_found_each_time,
                a_step_that_is_missing_between_two_is_recorded_once_and_moves_nothing,
                hooks_that_overtake_each_other_leave_nothing_to_be_found,
                a_hook_that_is_later_than_what_filled_its_hole_records_nothing,
                a_ref_that_goes_and_comes_back_to_the_same_commit_is_there,
                nothing_is_recorded_for_a_leader_whose_term_is_over,
            ],
            repositories: [
                each_hook_hears_once_of_what_it_wants,
                a_delivery_arrives_once,
                a_removed_hook_hears_nothing_more,
                a_hook_put_again_keeps_its_number_and_takes_on_the_rest,
                hooks_are_bounded_and_of_repositories_that_are_there,
                a_repository_reads_back_as_it_was_put_and_measured,
                a_removed_repository_takes_what_belongs_to_it_along,
                repositories_are_listed_by_name_page_by_page,
                events_are_found_by_repository_and_by_what_is_missing,
                old_processed_events_go_and_unprocessed_ones_stay,
            ],
            access: [
                a_token_reads_back_as_it_was_added,
                an_id_that_nobody_has_is_not_found,
                a_token_is_added_once,
                a_bad_token_is_not_kept,
                a_revoked_token_stays_revoked_and_listed,
                racing_operators_revoke_a_token_once,
                the_last_use_is_noted_once_a_minute,
                tokens_are_listed_by_id_page_by_page,
                there_is_a_token_from_the_first_one_on,
                a_token_is_good_for_what_it_allows_until_it_expires_by_the_stores_clock,
                a_token_revoked_in_one_process_is_refused_in_another_and_its_use_is_noted,
            ],
            audit: [
                an_action_is_there_from_its_beginning_and_gets_its_outcome_once,
                actions_are_listed_newest_first_by_what_is_asked,
                no_secret_and_nothing_endless_is_kept,
                old_actions_are_purged_and_young_ones_stay,
            ],
        }
    };
}

/// The same for what a store promises about directives; `open` gives a fresh [`Ingest`](crate::ingest::Ingest).
#[macro_export]
macro_rules! directive_conformance {
    ($open:path) => {
        $crate::queue_conformance! { @tests $open;
            directive_values: [
                a_value_reads_back_as_it_was_put,
                a_write_that_expects_something_else_is_told_what_is_there,
                of_racing_writers_with_the_same_expectation_one_is_stored,
                a_version_goes_on_after_a_removal,
                a_write_sent_again_is_stored_once,
                a_value_whose_time_is_over_is_absent_for_everybody,
                a_write_by_hand_leaves_a_row_in_the_audit,
                values_are_listed_by_key_page_by_page,
                a_write_without_names_is_refused,
                conflicts_are_counted,
            ],
            directive_runs: [
                a_run_begins_with_the_lease_and_reads_back,
                a_second_run_is_told_who_has_the_lease,
                racing_runs_get_the_lease_once,
                a_lease_that_ran_out_is_taken_and_its_run_has_failed,
                a_run_that_is_taken_up_goes_on_as_it_was,
                an_execution_that_was_replaced_writes_nothing_more,
                a_run_that_has_ended_is_not_begun_again,
                a_run_of_another_directive_is_not_taken_up,
                a_run_without_a_name_is_refused,
                a_beat_keeps_the_lease_and_what_the_run_says,
                a_late_beat_is_told_that_the_lease_is_lost,
                a_beat_never_makes_a_lease_shorter,
                a_run_ends_with_any_text,
                a_run_ends_once_and_gives_its_lease_back,
                a_run_whose_lease_ran_out_may_end_while_nobody_took_it,
                a_cancel_is_heard_by_beats_and_batches,
                runs_are_listed_newest_first_page_by_page,
                a_deposed_leader_begins_no_run_and_writes_no_batch,
            ],
            directive_batches: [
                a_batch_writes_rows_cursor_and_counts,
                what_is_unchanged_is_not_written,
                what_changed_is_written_with_a_higher_version,
                the_same_entity_of_another_tenant_or_directive_is_another_row,
                a_batch_with_a_stale_cursor_leaves_nothing,
                a_cursor_moved_by_hand_stops_the_run,
                a_batch_sent_again_is_answered_as_it_was,
                a_batch_of_a_run_that_is_not_there_is_refused,
                a_batch_that_cannot_add_up_leaves_nothing,
                a_batch_that_is_cut_off_leaves_all_or_nothing,
                a_part_is_noted_and_forgotten_with_its_page,
                the_last_page_is_noted_with_the_run,
                a_batch_that_stands_still_moves_no_cursor,
                a_replayed_batch_counts_only_what_it_changed,
                rows_elsewhere_are_counted_as_they_are,
                without_a_topic_nothing_is_announced,
                a_batch_of_many_large_items_is_written,
            ],
            directive_tables: [
                a_table_is_made_on_first_use_and_widened_when_columns_are_named,
                every_type_of_column_is_kept,
                a_table_that_was_not_made_for_directives_is_refused,
                a_column_of_another_type_is_refused,
                a_table_that_somebody_dropped_is_made_anew,
                racing_directives_make_a_table_once,
                a_column_that_somebody_dropped_is_known_once,
                a_dropped_column_does_not_come_back_with_another_type,
                a_table_that_got_a_rule_says_what_to_do,
            ],
            directive_kept: [
                a_reject_is_kept_with_its_reason,
                the_same_reject_is_kept_once_and_counted,
                an_item_resolves_the_records_of_its_entity,
                a_batch_resolves_the_records_it_names,
                a_record_that_is_rejected_again_is_open_again,
                quarantined_records_are_listed_newest_first_page_by_page,
                a_record_is_resolved_once,
                announcements_tell_what_changed_in_order,
                announcements_are_given_page_by_page_past_those_that_fail,
                an_announcement_arrives_once,
                what_waits_is_told_by_topic_with_the_problem_of_the_oldest,
                delivered_announcements_go_after_two_days,
                rows_elsewhere_resolve_the_records_of_their_entities,
                what_ended_long_ago_goes_and_what_is_open_stays,
                what_ended_long_ago_goes_a_few_at_a_time,
            ],
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_listed_once() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
        let list = include_str!("conformance.rs");
        let mut cases = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for rest in text.split("\npub async fn ").skip(1) {
                let name = rest.split('(').next().unwrap();
                let listed = list.lines().filter(|line| line.trim() == format!("{name},")).count();
                assert_eq!(listed, 1, "case {name} is listed {listed} times in queue_conformance!");
                cases += 1;
            }
        }
        assert!(cases >= 110, "only {cases} cases were found");
    }
}
