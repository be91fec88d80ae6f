//! The steps of a history: what producers, workers, operators and the clock do.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use stargate_queue::store::{
    Cancelled, ClaimRequest, KindSlots, Note, Once, Outcome, PauseTarget, Recovered, Settlement, Verdict,
};
use stargate_queue::{Due, Fence, JobId, LeaseToken, NewJob, Stage, State};

use super::model::{Held, ModelJob};
use super::world::{KEY_CONCURRENCY, KEYS, KINDS, QUEUES, World};
use crate::fixture::{LEASE, OTHER, RECOVERY_SLACK, WORK, failed, retry_in};

/// Whether a waiting job can be given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chance {
    No,
    /// Due, but its promotion may lag behind for a moment; or due before the clock went back.
    Maybe,
    Must,
}

impl World<'_> {
    pub(super) async fn step(&mut self) {
        self.next_step();
        match self.roll(100) {
            0..22 => self.enqueue().await,
            22..27 => self.enqueue_once().await,
            27..52 => self.claim().await,
            52..68 => self.settle_something().await,
            68..73 => self.late_answer().await,
            73..77 => self.forged_answer().await,
            77..82 => self.note().await,
            82..86 => self.beat().await,
            86..93 => self.move_clock(),
            93..95 => self.cancel().await,
            95..97 => self.retry().await,
            _ => self.pause_or_resume().await,
        }
    }

    fn new_job(&mut self) -> (NewJob, ModelJob) {
        let (kind, kind_attempts, max_crashes) = KINDS[self.roll(2)];
        let queue = QUEUES[self.roll(2)];
        let key = (self.keyed && self.roll(3) > 0).then(|| KEYS[self.roll(3)]);
        let unique = (self.roll(6) == 0).then(|| format!("unique {}", self.roll(4)));
        let priority = i16::try_from(self.roll(3)).unwrap();
        let max_attempts = (self.roll(4) == 0).then(|| u16::try_from(1 + self.roll(3)).unwrap());
        let delay = Duration::from_millis([0, 0, 0, 500, 5_000, 40_000][self.roll(6)]);
        let mut parents: Vec<JobId> = Vec::new();
        if self.roll(5) == 0 {
            for _ in 0..=self.roll(2) {
                parents.extend(self.some_job());
            }
        }
        let due = if delay.is_zero() { Due::Now } else { Due::In(delay) };
        let new = NewJob {
            kind: kind.into(),
            queue: queue.into(),
            priority,
            due,
            max_attempts,
            unique_key: unique.clone(),
            limit_key: key.map(Into::into),
            after: parents.clone(),
            ..NewJob::of(kind, &json!({ "simulated": true })).unwrap()
        };
        let model = ModelJob {
            kind,
            queue,
            key,
            unique,
            priority,
            state: State::Queued,
            attempt: 0,
            max_attempts: max_attempts.unwrap_or(kind_attempts),
            max_crashes,
            crashes: 0,
            progress: 0,
            cancel_requested: false,
            held: None,
            parents,
            failed_by_parent: false,
            events: Vec::new(),
            run_at: self.f.now() + delay,
            stage: None,
        };
        (new, model)
    }

    async fn enqueue(&mut self) {
        let (news, models): (Vec<NewJob>, Vec<ModelJob>) = (0..=self.roll(4)).map(|_| self.new_job()).unzip();
        let answers = self.f.store.enqueue(news).await.unwrap();
        self.tell(format!("enqueue: {:?}", answers.iter().map(|a| (a.id.0, a.existing)).collect::<Vec<_>>()));
        for (answer, model) in answers.into_iter().zip(models) {
            let holder = model.unique.as_deref().and_then(|key| self.model.holder_of_unique(key));
            match holder {
                Some(holder) => {
                    assert_eq!((answer.id, answer.existing), (holder, true), "the key is held: {model:?}")
                }
                None => {
                    assert!(!answer.existing, "nobody holds its key, yet {answer:?}: {model:?}");
                    assert!(
                        !self.model.jobs.contains_key(&answer.id),
                        "id {} was given out before",
                        answer.id
                    );
                    self.model.enqueue(answer.id, model);
                }
            }
        }
    }

    async fn enqueue_once(&mut self) {
        let key = format!("once {}", self.roll(5));
        let (new, model) = self.new_job();
        let new = NewJob { unique_key: None, ..new };
        let once = Once { key: key.clone(), fingerprint: "same".into() };
        let answer = self.f.store.enqueue_once(once, vec![new]).await.unwrap()[0];
        self.tell(format!("{key}: {answer:?}"));
        if let Some(ids) = self.once.get(&key) {
            assert_eq!((answer.id, answer.existing), (ids[0], true), "{key} was used before");
        } else {
            assert!(!answer.existing, "{key} is new: {answer:?}");
            self.model.enqueue(answer.id, ModelJob { unique: None, ..model });
            self.once.insert(key, vec![answer.id]);
        }
    }

    /// A worker as the engine drives it: one that has not beaten for long beats before it claims.
    async fn claim(&mut self) {
        let slot = self.roll(self.slots.len());
        let silence = self.f.now().duration_since(self.slots[slot].beat_low).unsigned_abs();
        if silence > LEASE / 2 || self.slots[slot].may_be_gone {
            self.beat_slot(slot).await;
        }
        let kinds: &[&str] = [&[WORK, OTHER][..], &[WORK, OTHER], &[WORK], &[OTHER]][self.roll(4)];
        let queues: &[&str] = [&[][..], &[], &["default"], &["side"]][self.roll(4)];
        let limit = 1 + self.roll(6);
        let slots = [1 + self.roll(5), 1 + self.roll(5)];
        for fence in self.claim_as(slot, limit, kinds, queues, slots).await {
            if self.roll(4) == 0 {
                let outcome = self.some_outcome(fence);
                self.late.push((fence, outcome));
            }
        }
    }

    /// Claims, and checks recovery and choice against the model.
    pub(super) async fn claim_as(
        &mut self,
        slot: usize,
        limit: usize,
        kinds: &[&str],
        queues: &[&str],
        slots: [usize; 2],
    ) -> Vec<Fence> {
        let lease = LEASE;
        let kind_slots = kinds.iter().map(|kind| KindSlots {
            kind: (*kind).to_owned(),
            slots: u32::try_from(slots[usize::from(*kind == OTHER)]).unwrap(),
            lease,
        });
        let request = ClaimRequest {
            worker: self.slots[slot].id,
            limit: u32::try_from(limit).unwrap(),
            queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
            kinds: kind_slots.collect(),
        };
        let claim = self.f.claim_as(request).await;
        let given: Vec<JobId> = claim.jobs.iter().map(|job| job.fence.job).collect();
        self.tell(format!(
            "slot {slot} asks for {limit} of {kinds:?} {slots:?} in {queues:?}: given {given:?}, recovered {:?}",
            claim.recovered.iter().map(|r| (r.job.0, r.became)).collect::<Vec<_>>()
        ));
        self.check_recovery(&claim.recovered, |_| true);
        self.check_given_up(&claim.recovered);
        self.recover(&claim.recovered);
        self.check_choice(&given, limit, kinds, queues, slots);
        for job in &claim.jobs {
            self.model.claim(Held { fence: job.fence, slot, lease });
            assert!(!self.fences.contains(&job.fence), "{:?} was given out before", job.fence);
            self.fences.push(job.fence);
        }
        if !given.is_empty() {
            // A claim may count as a beat.
            let now = self.f.now();
            let slot = &mut self.slots[slot];
            slot.beat_low = slot.beat_low.min(now);
            slot.beat_high = slot.beat_high.max(now);
        }
        claim.jobs.iter().map(|job| job.fence).collect()
    }

    /// Of the jobs of these slots all were recovered whose leases have run out, and no other.
    fn check_recovery(&self, recovered: &[Recovered], slots: impl Fn(usize) -> bool) {
        let now = self.f.now();
        for (id, job) in &self.model.jobs {
            let Some(held) = job.held else { continue };
            let slot = &self.slots[held.slot];
            let was = recovered.iter().any(|recovered| recovered.job == *id);
            let must = now > slot.beat_high + held.lease + RECOVERY_SLACK && slots(held.slot);
            assert!(was || !must, "job {id} was not recovered: {held:?} {slot:?}");
            let may = now >= slot.beat_low + held.lease && slots(held.slot);
            assert!(may || !was, "job {id} was recovered though its lease lasts: {held:?} {slot:?}");
        }
    }

    /// What a claim's recovery means for the workers that lost jobs.
    fn check_given_up(&mut self, recovered: &[Recovered]) {
        let now = self.f.now();
        for slot in &mut self.slots {
            slot.may_be_gone |= now >= slot.beat_low + LEASE;
        }
        for Recovered { job, .. } in recovered {
            if let Some(held) = self.model.jobs[job].held {
                let slot = &mut self.slots[held.slot];
                slot.must_be_gone |= now > slot.beat_high + LEASE;
            }
        }
    }

    fn recover(&mut self, recovered: &[Recovered]) {
        let now = self.f.now();
        for Recovered { job: id, became, .. } in recovered {
            assert!(self.model.jobs[id].held.is_some(), "job {id} was recovered but nobody held it");
            let expected = self.model.recover(*id);
            assert_eq!(*became, expected, "what became of job {id}");
            // Recovered jobs are claimable at once.
            let job = self.model.jobs.get_mut(id).expect("recovered above");
            job.stage = Some(Stage::Ready);
            job.run_at = job.run_at.min(now);
        }
        // Who looks for silent workers may set a beat that is yet to come anew: the clock was set back since.
        for slot in &mut self.slots {
            if slot.beat_high > now + LEASE {
                slot.beat_low = slot.beat_low.min(now);
            }
        }
    }

    /// Rule 12: whether a write with this fence takes effect; `None` when that is open, because it is open which beat
    /// counts.
    pub(super) fn verdict(&self, fence: Fence) -> Option<Verdict> {
        let held = self.model.jobs.get(&fence.job).and_then(|job| job.held);
        let Some(held) = held.filter(|held| held.fence == fence) else { return Some(Verdict::Stale) };
        let (now, slot) = (self.f.now(), &self.slots[held.slot]);
        if now >= slot.beat_high + held.lease {
            Some(Verdict::Stale)
        } else if now < slot.beat_low + held.lease {
            Some(Verdict::Accepted)
        } else {
            None
        }
    }

    fn chance(&self, job: &ModelJob) -> Chance {
        let paused = self.pauses.contains(&PauseTarget::Queue(job.queue.into()))
            || self.pauses.contains(&PauseTarget::Kind(job.kind.into()));
        if job.state != State::Queued || paused || self.model.is_blocked(job) {
            return Chance::No;
        }
        let now = self.f.now();
        match job.stage {
            Some(Stage::Ready) if job.run_at <= now => Chance::Must,
            Some(Stage::Ready) => Chance::Maybe,
            _ if job.run_at + RECOVERY_SLACK <= now => Chance::Must,
            _ if job.run_at <= now => Chance::Maybe,
            _ => Chance::No,
        }
    }

    /// Rules 7, 8 and 11: every given job could be given, in the right order, and no other that should have been.
    fn check_choice(
        &self,
        given: &[JobId],
        limit: usize,
        kinds: &[&str],
        queues: &[&str],
        slots: [usize; 2],
    ) {
        let served =
            |job: &ModelJob| kinds.contains(&job.kind) && (queues.is_empty() || queues.contains(&job.queue));
        for id in given {
            let job = self.model.jobs.get(id).unwrap_or_else(|| panic!("job {id} was never accepted"));
            assert!(served(job), "job {id} was not asked for: {job:?}");
            assert_ne!(self.chance(job), Chance::No, "job {id} cannot be given out: {job:?}");
        }
        let mut candidates: Vec<(JobId, &ModelJob)> =
            self.model.jobs.iter().map(|(id, job)| (*id, job)).collect();
        candidates
            .retain(|(id, job)| served(job) && (given.contains(id) || self.chance(job) == Chance::Must));
        candidates.sort_by_key(|(id, job)| (Reverse(job.priority), job.run_at, *id));
        if self.keyed {
            // Which key comes first is the fair share's business; given ones first, then nothing may fit any more.
            let order: Vec<i16> = given.iter().map(|id| self.model.jobs[id].priority).collect();
            assert!(order.is_sorted_by(|a, b| a >= b), "priorities {order:?} of {given:?} do not fall");
            candidates.sort_by_key(|(id, _)| !given.contains(id));
        }
        let mut kind_left: HashMap<&str, usize> = HashMap::from([(WORK, slots[0]), (OTHER, slots[1])]);
        let mut running = self.model.running_of_key();
        let mut expected = Vec::new();
        for (id, job) in candidates {
            let kind = kind_left.get_mut(job.kind).expect("one of the two kinds");
            let key_full =
                job.key.is_some_and(|key| running.get(key).copied().unwrap_or(0) >= KEY_CONCURRENCY);
            if expected.len() < limit && *kind > 0 && !key_full {
                *kind -= 1;
                expected.push(id);
                if let Some(key) = job.key {
                    *running.entry(key).or_default() += 1;
                }
            }
        }
        let mut told = given.to_vec();
        if self.keyed {
            told.sort();
            expected.sort();
        }
        let differ = told
            .iter()
            .filter(|id| !expected.contains(id))
            .chain(expected.iter().filter(|id| !told.contains(id)));
        let differ: Vec<String> = differ.map(|id| format!("{id}: {:?}", self.model.jobs[id])).collect();
        assert_eq!(told, expected, "the jobs given out, store against model; they differ in {differ:#?}");
    }

    fn some_outcome(&mut self, fence: Fence) -> Outcome {
        let job = &self.model.jobs[&fence.job];
        let may_retry = fence.attempt < job.max_attempts;
        // A job that has reported something was started, and an engine does not hand it back as if it was not.
        let untouched = job.events.last().is_some_and(|name| name == "processing");
        match self.roll(12) {
            0..2 if may_retry => retry_in(Duration::from_millis([0, 1_000, 30_000][self.roll(3)])),
            2..4 => failed(),
            4 => Outcome::Cancelled,
            5 if untouched => Outcome::Released,
            6 => Outcome::Aborted,
            _ => Outcome::Done { result: None },
        }
    }

    async fn settle_something(&mut self) {
        let held: Vec<Fence> =
            self.model.jobs.values().filter_map(|job| job.held).map(|held| held.fence).collect();
        if held.is_empty() {
            return;
        }
        let mut batch = Vec::new();
        for _ in 0..=self.roll(3) {
            let fence = held[self.roll(held.len())];
            batch.push(Settlement { fence, outcome: self.some_outcome(fence) });
        }
        self.settle_batch(batch).await;
    }

    pub(super) async fn settle_and_check(&mut self, fence: Fence, outcome: Outcome) {
        self.settle_batch(vec![Settlement { fence, outcome }]).await;
    }

    async fn settle_batch(&mut self, batch: Vec<Settlement>) {
        let told = self.f.store.settle(batch.clone()).await.unwrap();
        for (settlement, verdict) in batch.iter().zip(&told) {
            let (fence, outcome) = (settlement.fence, &settlement.outcome);
            self.tell(format!("settle job {} attempt {} {outcome:?}: {verdict:?}", fence.job, fence.attempt));
            let expected = self.verdict(fence).unwrap_or(*verdict);
            assert_eq!(*verdict, expected, "verdict on {outcome:?} for {fence:?}");
            if *verdict == Verdict::Accepted {
                self.model.settle(fence, outcome);
            }
        }
        assert_eq!(told.len(), batch.len(), "one verdict for each settlement");
    }

    async fn late_answer(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let nth = self.roll(self.late.len());
        let (fence, outcome) = self.late.swap_remove(nth);
        // A late release would come from an engine that never started it; by now it may have been noted.
        let outcome = if matches!(outcome, Outcome::Released) { Outcome::Aborted } else { outcome };
        self.settle_and_check(fence, outcome).await;
    }

    async fn forged_answer(&mut self) {
        if self.fences.is_empty() {
            return;
        }
        let nth = self.roll(self.fences.len());
        let mut fence = self.fences[nth];
        match self.roll(3) {
            0 => fence.token = LeaseToken(fence.token.0.wrapping_add(1)),
            1 => fence.attempt += 1,
            _ => fence.job = JobId(fence.job.0 + 1_000_000),
        }
        let outcome = Outcome::Done { result: None };
        let told = self.f.store.settle(vec![Settlement { fence, outcome }]).await.unwrap();
        self.tell(format!("forged {fence:?}: {told:?}"));
        assert_eq!(told, [Verdict::Stale], "a forged fence {fence:?}");
    }

    async fn note(&mut self) {
        if self.fences.is_empty() {
            return;
        }
        // Any fence ever given out: most are stale.
        let nth = self.roll(self.fences.len());
        let fence = self.fences[nth];
        let mut notes = Vec::new();
        for number in 0..=self.roll(3) {
            let progress = (self.roll(2) == 0).then(|| u8::try_from(self.roll(100)).unwrap());
            let data = serde_json::value::to_raw_value(&json!({ "number": number })).unwrap();
            let event = (self.roll(2) == 0).then(|| (format!("note:{number}"), data));
            notes.push(Note { fence, progress, event });
        }
        let told = self.f.store.note(notes.clone()).await.unwrap();
        self.tell(format!("{} notes of {fence:?}: {told:?}", notes.len()));
        for (note, verdict) in notes.iter().zip(told) {
            let name = note.event.as_ref().map(|(name, _)| name.as_str());
            assert_eq!(verdict, self.verdict(fence).unwrap_or(verdict), "verdict on {note:?}");
            if verdict == Verdict::Accepted {
                self.model.note(fence, note.progress, name);
            }
        }
    }

    async fn beat(&mut self) {
        let slot = self.roll(self.slots.len());
        self.beat_slot(slot).await;
    }

    async fn beat_slot(&mut self, number: usize) {
        let beat = self.f.store.beat(self.slots[number].id).await.unwrap();
        self.tell(format!("slot {number} beats: {beat:?}"));
        let now = self.f.now();
        self.check_recovery(&beat.recovered, |slot| beat.known && slot == number);
        self.recover(&beat.recovered);
        let held = |job: &&ModelJob| job.held.is_some_and(|held| held.slot == number);
        let slot = &mut self.slots[number];
        if beat.known {
            assert!(!slot.must_be_gone, "slot {number} was given up and is told it was not: {slot:?}");
            slot.beat_low = now;
            slot.beat_high = slot.beat_high.max(now);
            slot.may_be_gone = false;
            let asked = self.model.jobs.iter().filter(|(_, job)| held(job) && job.cancel_requested);
            let expected: Vec<JobId> = asked.map(|(id, _)| *id).collect();
            let mut told = beat.cancels;
            told.sort();
            assert_eq!(told, expected, "jobs that slot {number} is asked to cancel");
        } else {
            assert!(slot.may_be_gone, "slot {number} was given up though it was not silent: {slot:?}");
            let left: Vec<&ModelJob> = self.model.jobs.values().filter(held).collect();
            assert!(left.is_empty(), "slot {number} was given up and still holds {left:?}");
            self.slots[number] = self.fresh_slot(number).await;
        }
    }

    fn move_clock(&mut self) {
        let by = Duration::from_millis([100, 900, 5_000, 20_000, 33_000, 120_000][self.roll(6)]);
        if self.roll(6) == 0 {
            self.f.jump_back(by);
            self.tell(format!("the clock jumps back by {by:?}"));
        } else {
            self.f.advance(by);
            self.tell(format!("the clock moves on by {by:?}"));
        }
    }

    async fn cancel(&mut self) {
        let Some(id) = self.some_job() else { return };
        let state = self.model.jobs[&id].state;
        let answer = self.f.store.cancel(id).await;
        self.tell(format!("cancel {state} job {id}: {answer:?}"));
        match answer {
            Ok(answer) => {
                assert!(!state.is_finished(), "job {id} was {state} and got cancelled");
                let ended = self.model.cancel(id);
                assert_eq!(answer == Cancelled::Ended, ended, "{answer:?} for the {state} job {id}");
            }
            Err(error) => {
                assert!(state.is_finished(), "job {id} is {state} and could not be cancelled: {error}");
                assert_eq!(error.code(), "WRONG_STATE", "{error}");
            }
        }
    }

    async fn retry(&mut self) {
        let Some(id) = self.some_job() else { return };
        let job = &self.model.jobs[&id];
        // Whether a job can be retried while its parents have not been done is left open.
        if job.failed_by_parent {
            return;
        }
        let state = job.state;
        let taken = job.unique.as_deref().and_then(|key| self.model.holder_of_unique(key)).is_some();
        let answer = self.f.store.retry(id).await;
        self.tell(format!("retry {state} job {id}: {answer:?}"));
        match answer {
            Ok(()) => {
                assert!(
                    state == State::Failed && !taken,
                    "job {id} was {state} (key taken: {taken}) and was retried"
                );
                self.model.retry(id);
                let stored = self.f.job(id).await;
                let model = self.model.jobs.get_mut(&id).expect("retried above");
                assert!(stored.max_attempts > model.attempt, "a retried job may run again: {stored:?}");
                // How often it may run and crash from now on is checked by the conformance suite.
                model.max_attempts = stored.max_attempts;
                model.crashes = stored.crash_count;
            }
            Err(error) => {
                assert!(state != State::Failed || taken, "failed job {id} could not be retried: {error}")
            }
        }
    }

    async fn pause_or_resume(&mut self) {
        let target = match self.roll(4) {
            0 => PauseTarget::Queue(QUEUES[0].into()),
            1 => PauseTarget::Queue(QUEUES[1].into()),
            2 => PauseTarget::Kind(WORK.into()),
            _ => PauseTarget::Kind(OTHER.into()),
        };
        self.tell(format!("pause or resume {target:?}"));
        if self.pauses.remove(&target) {
            assert!(self.f.store.resume(target.clone()).await.unwrap(), "{target:?} was paused");
        } else {
            self.f.store.pause(target.clone()).await.unwrap();
            self.pauses.insert(target);
        }
        let mut told = self.f.store.pauses().await.unwrap();
        told.sort();
        assert_eq!(told, self.pauses.iter().cloned().collect::<Vec<_>>(), "what is paused");
    }
}
