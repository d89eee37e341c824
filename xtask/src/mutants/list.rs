//! What is broken on purpose, and the tests that must find it.

use super::{Mutant, Test};

const ENGINE: Test = Test::of("distlock-api", "engine");
const RACES: Test = Test::races();
const SQLITE: Test = Test::of("distlock-sqlite", "conformance");
const REDIS: Test = Test::of("distlock-redis", "conformance");
const POSTGRES: Test = Test::of("distlock-postgres", "conformance");
const MARIADB: Test = Test::of("distlock-mysql", "conformance_mariadb");

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "deadline from the reply",
        file: "lock-api/src/engine/attempt.rs",
        from: "Deadline::new(t0, terms.lease,",
        to: "Deadline::new(Instant::now(), terms.lease,",
        tests: &[ENGINE.named("hold::the_deadline_counts_from_before_the_request_left")],
    },
    Mutant {
        name: "deadline of a renewal from the reply",
        file: "lock-api/src/engine/watchdog/batch.rs",
        from: "Deadline::new(asked.t0,",
        to: "Deadline::new(Instant::now(),",
        tests: &[
            ENGINE.named("watchdog::the_deadline_of_a_renewal_counts_from_before_it_left"),
            REDIS.named("F.5_late_renewal_counts_from_its_sending"),
        ],
    },
    Mutant {
        name: "deadline without the drift of clocks",
        file: "lock-api/src/engine/deadline.rs",
        from: "let given_away = lease / DRIFT + DEADLINE_MARGIN + granularity;",
        to: "let given_away = Duration::ZERO * (DRIFT + u32::from(granularity > DEADLINE_MARGIN));",
        tests: &[REDIS.named("F.1_dead_link_is_told_in_time")],
    },
    Mutant {
        name: "no clean-up after a dropped attempt",
        file: "lock-api/src/engine/attempt.rs",
        from: "Some(Ok(Attempt::Acquired { .. })) => Some(Certainty::Granted),",
        to: "Some(Ok(Attempt::Acquired { .. })) => None,",
        tests: &[
            ENGINE.named("cancel::an_acquire_dropped_at_any_poll_leaves_nothing"),
            SQLITE.named("8.1_dropped_acquire"),
        ],
    },
    Mutant {
        name: "no clean-up after a timeout",
        file: "lock-api/src/engine/attempt.rs",
        from: "self.future.take().zip(self.ticket.take()) {",
        to: "self.future.take().zip(None::<Ticket>) {",
        tests: &[ENGINE.named("cancel::an_attempt_that_times_out_is_carried_on_and_released")],
    },
    Mutant {
        name: "no clean-up of what is never answered",
        file: "lock-api/src/engine/attempt.rs",
        from: "None => Some(Certainty::MayBeGrantedYet),",
        to: "None => None,",
        tests: &[ENGINE.named("cancel::an_attempt_that_is_never_answered_is_released_all_the_same")],
    },
    Mutant {
        name: "no clean-up after an error that leaves doubt",
        file: "lock-api/src/engine/attempt.rs",
        from: "in_flight.settle_if_unknown(&error);",
        to: "",
        tests: &[
            ENGINE.named("cancel::a_grant_whose_answer_was_lost_is_released"),
            REDIS.named("F.6_lost_answer_leaves_no_lock"),
            REDIS.named("F.8_cut_answers"),
        ],
    },
    Mutant {
        name: "one release is enough, whatever the doubt",
        file: "lock-api/src/engine/cleanup.rs",
        from: "Some(Ok(Release::NotHeld { .. })) if certainty == Certainty::Granted => return,",
        to: "Some(Ok(Release::NotHeld { .. })) if certainty != Certainty::Granted => return,",
        tests: &[ENGINE.named(
            "cancel::a_request_that_arrives_after_its_connection_died_is_released_within_its_lease",
        )],
    },
    Mutant {
        name: "at_least from the question",
        file: "lock-api/src/engine/attempt.rs",
        from: "at_least: AtLeast::from_now(terms.at_least),",
        to: "at_least: AtLeast::from_now(terms.at_least.saturating_sub(t0.elapsed())),",
        tests: &[
            ENGINE.named("hold::at_least_for_counts_from_the_answer_and_not_from_the_question")
        ],
    },
    Mutant {
        name: "at_least forgotten by a drop",
        file: "lock-api/src/engine/attempt.rs",
        from: "let (at_least, span) = (self.at_least, self.span);",
        to: "let (at_least, span) = (AtLeast::none(), self.span);",
        tests: &[ENGINE
            .named("hold::at_least_for_holds_for_dropped_guards_too_and_not_beyond_a_longer_job")],
    },
    Mutant {
        name: "a renewal's answer revives a released lock",
        file: "lock-api/src/hold.rs",
        from: "        if state.end.is_some() {\n            return false;\n        }\n",
        to: "        state.end = None;\n",
        tests: &[RACES.named("an_answer_that_comes_with_the_release_revives_nothing")],
    },
    Mutant {
        name: "a loss that nobody is woken for",
        file: "lock-api/src/hold.rs",
        from: "        drop(state);\n        self.0.end.notify_waiters();",
        to: "        drop(state);",
        tests: &[RACES.named("a_loss_wakes_whoever_waits_for_it")],
    },
    Mutant {
        name: "a lease that is lost before its time is up",
        file: "lock-api/src/engine/watchdog.rs",
        from: "        let pause = ttl / RENEWALS_PER_LEASE;\n",
        to: "        let pause = ttl * 2 / RENEWALS_PER_LEASE;\n",
        tests: &[ENGINE.named("model::whatever_is_done_the_engine_keeps_to_the_model")],
    },
    Mutant {
        name: "renewals go on after the release",
        file: "lock-api/src/engine/watchdog.rs",
        from: "let wanted = watched.leases.contains_key(key) && watch.hold.is_valid();",
        to: "let wanted = watched.leases.len() < usize::MAX || watch.hold.is_valid();",
        tests: &[RACES.named("no_renewal_leaves_after_a_release")],
    },
    Mutant {
        name: "what was released while its batch waited is renewed",
        file: "lock-api/src/engine/watchdog/batch.rs",
        from: "self.leases.retain(|lease| watchdog.is_wanted(lease));",
        to: "",
        tests: &[
            ENGINE.named("watchdog::a_batch_that_waits_leaves_out_what_was_released_meanwhile")
        ],
    },
    Mutant {
        name: "long leases keep short ones waiting",
        file: "lock-api/src/engine/watchdog/batch.rs",
        from: "watchdog.under_way[self.length]",
        to: "watchdog.under_way[0]",
        tests: &[ENGINE.named("watchdog::short_leases_do_not_wait_for_long_ones")],
    },
    Mutant {
        name: "due from the answer",
        file: "lock-api/src/engine/watchdog.rs",
        from: "let due = self.due_after(t0, ttl);",
        to: "let due = self.due_after(Instant::now(), ttl);",
        tests: &[ENGINE.named("watchdog::a_slow_grant_is_renewed_all_the_sooner")],
    },
    Mutant {
        name: "two renewals of one lease at a time",
        file: "lock-api/src/engine/watchdog.rs",
        from: "if watch.due <= now + early && !watch.in_flight {",
        to: "if watch.due <= now + early {",
        tests: &[RACES.named("two_batches_never_take_the_same_lease")],
    },
    Mutant {
        name: "an earlier lease does not wake the watchdog",
        file: "lock-api/src/engine/watchdog.rs",
        from: "if ran && watched.planned.is_none_or(|planned| due < planned) {",
        to: "if ran && watched.planned.is_none() {",
        tests: &[RACES.named("a_lease_that_is_due_earlier_than_planned_is_seen")],
    },
    Mutant {
        name: "one failed renewal ends the watchdog",
        file: "lock-api/src/engine/watchdog/batch.rs",
        from: "true => Keep::Until(watchdog.now() + self.retry_pause()),",
        to: "true => Keep::No,",
        tests: &[
            ENGINE.named("watchdog::failures_are_tried_again_until_the_deadline"),
            REDIS.named("F.2_healed_link_keeps_the_lock"),
        ],
    },
    Mutant {
        name: "that the lock is another's is tried again",
        file: "lock-api/src/engine/watchdog/batch.rs",
        from: "Ok(Renewal::Lost { to: Some(by) }) => self.lost(Loss::Taken { by }),",
        to: "Ok(Renewal::Lost { to: Some(_) }) => Keep::Until(watchdog.now() + self.retry_pause()),",
        tests: &[ENGINE.named("watchdog::that_the_lock_is_anothers_is_final_and_says_whose")],
    },
    Mutant {
        name: "the watchdog renews beyond at_most_for",
        file: "lock-api/src/engine/watchdog/batch.rs",
        from: "let bound = self.bound.map_or(Duration::MAX, |bound| bound.left());",
        to: "let bound = self.bound.map_or(Duration::MAX, |bound| bound.left() + self.ttl);",
        tests: &[ENGINE.named("watchdog::at_most_for_bounds_the_hold_even_of_a_forgotten_guard")],
    },
    Mutant {
        name: "a batch that hangs is never made smaller",
        file: "lock-api/src/engine/watchdog/batch.rs",
        from: "self.splits += u32::from(asked.hangs);",
        to: "",
        tests: &[ENGINE.named("watchdog::a_lease_that_hangs_takes_no_other_down_with_it")],
    },
    Mutant {
        name: "a shutdown that does not wait",
        file: "lock-api/src/engine/background.rs",
        from: "            if self.pending() == 0 {\n                return;\n            }\n            notified.await;",
        to: "            drop(notified);\n            return;",
        tests: &[RACES.named("a_shutdown_waits_for_every_attempt_that_does_not_see_it")],
    },
    Mutant {
        name: "a job goes on after its lock is lost",
        file: "lock-api/src/locks.rs",
        from: "            loss = guard.lost(), if",
        to: "            loss = std::future::pending(), if",
        tests: &[
            ENGINE.named("watchdog::a_job_under_a_watchdog_is_stopped_when_its_lock_is_lost"),
            SQLITE.named("7.3_run_stops_the_job"),
        ],
    },
    Mutant {
        name: "release without owner, SQLite",
        file: "lock-sqlite/src/record.rs",
        from: "if self.token != lease.token || state == LockState::Free {",
        to: "if state == LockState::Free {",
        tests: &[SQLITE.named("5.1_")],
    },
    Mutant {
        name: "release without owner, Redis",
        file: "lock-redis/src/statements/release.lua",
        from: "if not holder or string.sub(holder, 1, 32) ~= token then",
        to: "if not holder then",
        tests: &[REDIS.named("5.1_")],
    },
    Mutant {
        name: "release without owner, PostgreSQL",
        file: "lock-postgres/src/statements/release.sql",
        from: "WHERE name = $1 AND token = $2 AND NOT resting AND lock_until",
        to: "WHERE name = $1 AND NOT resting AND lock_until",
        tests: &[POSTGRES.named("5.1_")],
    },
    Mutant {
        name: "release without owner, MariaDB",
        file: "lock-mysql/src/statements/release.sql",
        from: "WHERE name = ? AND token = ? AND resting = 0",
        to: "WHERE name = ? AND ? IS NOT NULL AND resting = 0",
        tests: &[MARIADB.named("5.1_")],
    },
    Mutant {
        name: "renewal revives, SQLite",
        file: "lock-sqlite/src/statements/renew.sql",
        from: " AND boot_until > ?4",
        to: " AND ?4 > 0",
        tests: &[SQLITE.named("5.6_"), SQLITE.named("5.7_")],
    },
    Mutant {
        name: "renewal by anybody, Redis",
        file: "lock-redis/src/statements/renew.lua",
        from: "if not holder or string.sub(holder, 1, 33) ~= ARGV[1] then",
        to: "if not holder then",
        tests: &[REDIS.named("5.2_")],
    },
    Mutant {
        name: "renewal revives, PostgreSQL",
        file: "lock-postgres/src/statements/renew.sql",
        from: "    WHERE NOT lock.resting AND lock.lock_until > clock_timestamp()\n    FOR UPDATE OF lock SKIP LOCKED\n), renewed AS (\n    UPDATE {table} AS lock\n    SET lock_until = GREATEST(lock_until, clock_timestamp() + ours.ttl * interval '1 microsecond')\n    FROM ours\n    WHERE lock.name = ours.name\n      AND lock.token = ours.token\n      AND NOT lock.resting\n      AND lock.lock_until > clock_timestamp()",
        to: "    WHERE NOT lock.resting\n    FOR UPDATE OF lock SKIP LOCKED\n), renewed AS (\n    UPDATE {table} AS lock\n    SET lock_until = GREATEST(lock_until, clock_timestamp() + ours.ttl * interval '1 microsecond')\n    FROM ours\n    WHERE lock.name = ours.name\n      AND lock.token = ours.token\n      AND NOT lock.resting",
        tests: &[POSTGRES.named("5.6_"), POSTGRES.named("5.7_")],
    },
    Mutant {
        name: "renewal revives, MariaDB",
        file: "lock-mysql/src/statements/renew.sql",
        from: "          AND held.lock_until > UTC_TIMESTAMP(6)\n",
        to: "",
        tests: &[MARIADB.named("5.6_"), MARIADB.named("5.7_")],
    },
    Mutant {
        name: "renewal shortens, MariaDB",
        file: "lock-mysql/src/statements/renew.sql",
        from: "GREATEST(lease.lock_until, TIMESTAMPADD(MICROSECOND, ours.ttl, UTC_TIMESTAMP(6)))",
        to: "TIMESTAMPADD(MICROSECOND, ours.ttl, UTC_TIMESTAMP(6))",
        tests: &[MARIADB.named("5.5_"), MARIADB.named("C.5_")],
    },
    Mutant {
        name: "the fence forgets the time, Redis",
        file: "lock-redis/src/statements/acquire.lua",
        from: "  if now > stored then",
        to: "  if now > stored and stored < 0 then",
        tests: &[REDIS.named("6.4_")],
    },
    Mutant {
        name: "the fence repeats, PostgreSQL",
        file: "lock-postgres/src/statements/acquire.sql",
        from: "fence = GREATEST(fence + 1, (date_part",
        to: "fence = GREATEST(fence, (0 * date_part",
        tests: &[
            POSTGRES.named("6.1_"),
            POSTGRES.named("P.1_frozen_holder_knows_at_once"),
        ],
    },
];
