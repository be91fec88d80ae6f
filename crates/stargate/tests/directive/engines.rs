//! What every engine has to do, on every store.

use crate::stage::{Engine, Kind, Place};
use crate::{cancel, conflict, kill, quarantine, retries, steps};

/// Names each scenario once and runs it everywhere.
macro_rules! everywhere {
    ($($name:ident = $scenario:path;)*) => {
        everywhere!(@ embedded_on_sqlite, Engine::Embedded, Kind::Sqlite, $($name = $scenario;)*);
        everywhere!(@ embedded_on_postgres, Engine::Embedded, Kind::Postgres, $($name = $scenario;)*);
        everywhere!(@ temporal_on_sqlite, Engine::Temporal, Kind::Sqlite, $($name = $scenario;)*);
        everywhere!(@ temporal_on_postgres, Engine::Temporal, Kind::Postgres, $($name = $scenario;)*);
    };
    (@ $place:ident, $engine:expr, $kind:expr, $($name:ident = $scenario:path;)*) => {
        mod $place {
            use super::*;

            const PLACE: Place = Place { kind: $kind, engine: $engine };

            $(
                #[tokio::test]
                async fn $name() {
                    $scenario(PLACE).await;
                }
            )*
        }
    };
}

everywhere! {
    the_seven_steps_are_taken_and_logged_in_their_order = steps::are_taken_and_logged_in_their_order;
    what_is_unchanged_is_said_and_not_written = steps::what_is_unchanged_is_said_and_not_written;
    what_the_source_asks_for_is_waited_for = retries::what_the_source_asks_for_is_waited_for;
    what_needs_an_operator_fails_at_once_and_goes_on_when_mended = retries::what_needs_an_operator_fails_at_once;
    a_cursor_moved_by_hand_during_a_run_is_found_and_followed = conflict::moved_by_hand_during_a_run;
    a_second_run_of_a_directive_stands_for_the_first = conflict::a_second_run_stands_for_the_first;
    one_bad_record_in_ten_thousand_is_kept_aside = quarantine::one_in_ten_thousand;
    a_run_cancelled_in_mid_page_keeps_what_is_whole = cancel::in_the_middle_of_a_page;
    a_run_that_waits_for_its_source_can_be_cancelled = cancel::while_it_waits_for_its_source;
    a_worker_that_stops_leaves_its_run_to_the_next = cancel::a_worker_that_stops_leaves_its_run_to_the_next;
    a_worker_killed_at_every_step_leaves_rows_and_cursor_that_agree = kill::at_every_step;
    workers_killed_anywhere_neither_lose_nor_repeat_anything = kill::anywhere;
}
