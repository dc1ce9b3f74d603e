//! The accounts of what this node's rounds spend, and the reservations of rounds under way.
//!
//! The accounts are in memory. What was spent before is read from the store: on the first round that this process runs of a
//! conversation, and of a user every [`STALE_MS`], because other nodes spend on the same day. So the caps hold over restarts. On
//! one node they are exact up to the difference between the expected and the real cost of the rounds under way. Several nodes
//! together may exceed the cap of a day by what the others spend within [`STALE_MS`].

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use annie_core::{
    context,
    guard::{CallCap, CallRefusal, CallTimes},
    ids::{ConversationId, Epoch, TaskId, UserId},
    message::{ModelRequest, Usage},
    ports::{Env, Store},
    route::BackendFacts,
    spend::{Account, Cap, Day, SpendLimits, SpendRefusal, Spent, UsageBy, UsageQuery, UsageTotals, expected},
    time::Micros,
};
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

/// After this time the spending of a user's day is read again, in milliseconds.
const STALE_MS: u64 = 5_000;
/// How long a round waits for the store, in milliseconds. After this, the accounts are used as they are.
const READ_MS_MAX: u64 = 2_000;
/// Accounts of each kind that are kept after their last use, at least; at most twice as many.
const EACH_MAX: usize = 8_192;
/// How long a round waits for others that have reserved more than they will use, in milliseconds.
const RELEASED_MS_MAX: u64 = 60_000;

/// Whose accounts a round uses.
#[derive(Debug, Clone)]
pub(crate) struct Payer {
    pub task: TaskId,
    pub conversation: ConversationId,
    pub user: UserId,
    /// The epoch of the Engine. If another node owned the conversation meanwhile, the account is read again.
    pub epoch: Epoch,
    /// What the turn has spent according to the log.
    pub spent_in_turn: Spent,
    /// Whether nothing was spent on the conversation before.
    pub is_first_round: bool,
    /// The model calls of the conversation according to the log, if they have a cap and the agent knows them.
    pub calls: Option<CallTimes>,
}

/// The accounts of a process.
pub(crate) struct SpendLedger {
    limits: SpendLimits,
    books: Mutex<Books>,
    /// Wakes rounds that wait for the end of a reservation.
    released: watch::Sender<()>,
}

#[derive(Default)]
struct Books {
    turns: Recent<TaskId, Account>,
    /// With the epoch in which the account was read.
    conversations: Recent<ConversationId, (Account, Option<Epoch>)>,
    /// With the time at which the account was read.
    days: Recent<(UserId, Day), (Account, Option<Micros>)>,
    /// The model calls of conversations, if they have a cap.
    /// With the epoch in which the log was read.
    calls: Recent<ConversationId, (CallTimes, Option<Epoch>)>,
    /// What a thousand tokens of a backend cost last, in nanodollars.
    prices: BTreeMap<String, u64>,
    /// The usage of all rounds of this process.
    totals: UsageTotals,
}

impl SpendLedger {
    pub fn new(limits: SpendLimits) -> Self {
        Self { limits, books: Mutex::default(), released: watch::Sender::new(()) }
    }

    /// Reads what was spent before, as far as it is not known. If the store does not answer, the accounts stay as they are: the
    /// round fails anyway if its result cannot be stored.
    pub async fn read(&self, store: &dyn Store, payer: &Payer, now: Micros) {
        let of_conversation = {
            let mut books = self.books.lock();
            let (_, read_in) = books.conversations.entry(payer.conversation);
            if payer.is_first_round {
                read_in.get_or_insert(payer.epoch);
            }
            self.limits.has(Cap::Conversation) && *read_in != Some(payer.epoch)
        };
        if of_conversation {
            let all = UsageQuery::all(UsageBy::All, Some(payer.user.clone()));
            let spent = spent(store, UsageQuery { conversation: Some(payer.conversation), ..all }).await;
            let mut books = self.books.lock();
            let (account, read_in) = books.conversations.entry(payer.conversation);
            if let Some(spent) = spent {
                account.spent = account.spent.max(spent);
                *read_in = Some(payer.epoch);
            }
        }
        self.read_day(store, &payer.user, now).await;
    }

    /// The same for the account of a user's day alone.
    pub async fn read_day(&self, store: &dyn Store, user: &UserId, now: Micros) {
        let day = Day::of(now);
        let knows_day = {
            let mut books = self.books.lock();
            let (_, read_at) = books.days.entry((user.clone(), day));
            !self.limits.has(Cap::UserDay) || read_at.is_some_and(|at| now.since_ms(at) < STALE_MS && at <= now)
        };
        if knows_day {
            return;
        }
        let all = UsageQuery::all(UsageBy::All, Some(user.clone()));
        let spent = spent(store, UsageQuery { from: day, to: day, ..all }).await;
        let mut books = self.books.lock();
        let (account, read_at) = books.days.entry((user.clone(), day));
        if let Some(spent) = spent {
            account.spent = account.spent.max(spent);
            *read_at = Some(now);
        }
    }

    /// Notices reservations that end from now on.
    pub fn releases(&self) -> Releases {
        Releases { released: self.released.subscribe(), until: None }
    }

    /// Waits until a round that only reservations of others kept below a cap may be tried again, because it fits, or because waiting
    /// does not help any more. Returns false if time is up.
    pub async fn may_fit_in_time(
        &self,
        releases: &mut Releases,
        payer: &Payer,
        (backend, cost): (&BackendFacts, (u64, u32)),
        env: &Env,
    ) -> bool {
        while releases.wait().await {
            let needed = self.books.lock().needed(&self.limits, payer, (backend, cost), env.now());
            if needed.err().is_none_or(|refusal| !refusal.may_pass()) {
                return true;
            }
        }
        false
    }

    /// The backends of a route that cost nothing.
    pub fn free_of(&self, route: &[String], facts: &[BackendFacts]) -> Vec<String> {
        const MANY_TOKENS: u64 = 1_000_000;
        let books = self.books.lock();
        let is_free = |name: &&String| {
            let seen = books.prices.get(*name).copied().unwrap_or_default();
            let facts = facts.iter().find(|facts| facts.name == **name);
            facts.is_some_and(|facts| expected(MANY_TOKENS, MANY_TOKENS, facts, seen).is_free)
        };
        route.iter().filter(is_free).cloned().collect()
    }

    /// Counts a model call of a conversation.
    ///
    /// # Errors
    /// The cap that the call would exceed.
    pub fn count_call(&self, payer: &Payer, cap: CallCap, now: Micros) -> Result<(), CallRefusal> {
        if cap.calls_max == 0 {
            return Ok(());
        }
        let mut books = self.books.lock();
        let (calls, read_in) = books.calls.entry(payer.conversation);
        if let Some(known) = payer.calls.as_ref().filter(|_| *read_in != Some(payer.epoch)) {
            calls.learn(known);
            *read_in = Some(payer.epoch);
        }
        if let Some(refusal) = cap.refusal(calls, now) {
            return Err(refusal);
        }
        calls.count(now, 1);
        Ok(())
    }

    /// Learns the model calls of a conversation from its log, so that rounds of its sub-agents, which do not know them, count.
    pub fn know_calls(&self, conversation: ConversationId, known: &CallTimes) {
        if !known.is_empty() {
            self.books.lock().calls.entry(conversation).0.learn(known);
        }
    }

    /// Reserves the expected cost of a call of a backend: the tokens of its prompt, and those of the longest answer.
    ///
    /// # Errors
    /// The cap that the round would exceed. If only reservations of rounds under way are in the way, the round may wait for their
    /// ends ([`Self::releases`]), because most rounds use a part of what they have reserved. It must not hold a permit meanwhile.
    pub fn reserve(
        self: &Arc<Self>,
        payer: &Payer,
        backend: &BackendFacts,
        (input_tokens, output_tokens_max): (u64, u32),
        now: Micros,
    ) -> Result<Reservation, SpendRefusal> {
        let mut guard = self.books.lock();
        let books = &mut *guard;
        let needed = books.needed(&self.limits, payer, (backend, (input_tokens, output_tokens_max)), now)?;
        let key = (payer.user.clone(), Day::of(now));
        books.each(Some(payer), &key, |account| account.reserved = account.reserved.plus(needed));
        drop(guard);
        let (ledger, of_round) = (Arc::clone(self), Some((payer.clone(), backend.name.clone())));
        Ok(Reservation { ledger, of_round, key, needed })
    }

    /// Reserves the tokens of a request for embeddings, which belongs to no turn. The price of a backend is that of its language model,
    /// so only the cost that the provider reports is counted.
    ///
    /// # Errors
    /// The cap of the user's day that the request would exceed.
    pub fn reserve_embeddings(
        self: &Arc<Self>,
        user: &UserId,
        backend: &BackendFacts,
        input_tokens: u64,
        now: Micros,
    ) -> Result<Reservation, SpendRefusal> {
        let needed = expected(input_tokens, 0, &BackendFacts { cost: None, ..backend.clone() }, 0);
        let key = (user.clone(), Day::of(now));
        let mut books = self.books.lock();
        self.limits.check(Cap::UserDay, &books.days.entry(key.clone()).0, needed)?;
        let needed = needed.spent;
        books.each(None, &key, |account| account.reserved = account.reserved.plus(needed));
        Ok(Reservation { ledger: Arc::clone(self), of_round: None, key, needed })
    }
}

/// The ends of reservations, for a round that waits for one.
pub(crate) struct Releases {
    released: watch::Receiver<()>,
    /// The end of the time for all waits, from the first one on.
    until: Option<Instant>,
}

impl Releases {
    /// Forgets the ends until now.
    pub fn mark(&mut self) {
        self.released.mark_unchanged();
    }

    /// Waits for the end of a reservation since [`Self::mark`]. Returns false if time is up.
    pub async fn wait(&mut self) -> bool {
        let until = *self.until.get_or_insert_with(|| Instant::now() + Duration::from_millis(RELEASED_MS_MAX));
        // Others may release and reserve again and again.
        Instant::now() < until && matches!(tokio::time::timeout_at(until, self.released.changed()).await, Ok(Ok(())))
    }
}

/// What the store has recorded; `None` if it does not answer.
async fn spent(store: &dyn Store, query: UsageQuery) -> Option<Spent> {
    let read = tokio::time::timeout(Duration::from_millis(READ_MS_MAX), store.usage(query)).await;
    match read {
        Ok(Ok(rows)) => Some(rows.first().map(|row| row.totals.spent()).unwrap_or_default()),
        Ok(Err(error)) => {
            tracing::warn!(%error, "what was spent before could not be read; the caps count what this process knows");
            None
        }
        Err(_) => {
            tracing::warn!("what was spent before was not read in time; the caps count what this process knows");
            None
        }
    }
}

/// The tokens of a prompt, estimated from its length.
pub(crate) fn input_tokens(request: &ModelRequest) -> u64 {
    let system: usize = request.system.iter().map(|part| part.text.len()).sum();
    let tools: usize = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len())
        .sum();
    u64::from(context::tokens_of(&request.messages)) + u64::from(context::tokens(system + tools))
}

impl Books {
    /// The expected cost of a round, if it fits below all caps.
    fn needed(
        &mut self,
        limits: &SpendLimits,
        payer: &Payer,
        (backend, (input_tokens, output_tokens_max)): (&BackendFacts, (u64, u32)),
        now: Micros,
    ) -> Result<Spent, SpendRefusal> {
        let seen = self.prices.get(&backend.name).copied().unwrap_or_default();
        let needed = expected(input_tokens, output_tokens_max.into(), backend, seen);
        let turn = self.turns.entry(payer.task);
        turn.spent = turn.spent.max(payer.spent_in_turn);
        limits.check(Cap::Turn, turn, needed)?;
        limits.check(Cap::Conversation, &self.conversations.entry(payer.conversation).0, needed)?;
        limits.check(Cap::UserDay, &self.days.entry((payer.user.clone(), Day::of(now))).0, needed)?;
        Ok(needed.spent)
    }

    /// Changes the accounts of a round, or the account of a day alone.
    fn each(&mut self, of_round: Option<&Payer>, day: &(UserId, Day), change: impl Fn(&mut Account)) {
        if let Some(payer) = of_round {
            change(self.turns.entry(payer.task));
            change(&mut self.conversations.entry(payer.conversation).0);
        }
        change(&mut self.days.entry(day.clone()).0);
    }
}

/// The expected cost of a round under way. It is released when the round ends in any way.
pub(crate) struct Reservation {
    ledger: Arc<SpendLedger>,
    /// The payer and the backend of a round; `None` for embeddings.
    of_round: Option<(Payer, String)>,
    key: (UserId, Day),
    needed: Spent,
}

impl Reservation {
    /// Replaces the expected cost by the reported one.
    pub fn settle(mut self, usage: &Usage) {
        let (spent, needed) = (Spent::of(usage), std::mem::take(&mut self.needed));
        let mut books = self.ledger.books.lock();
        books.totals.add(&UsageTotals::of(usage));
        metrics::counter!("annie_llm_cost_nanodollars_total").increment(spent.nanodollars);
        let UsageTotals { input_tokens, cached_tokens, .. } = books.totals;
        if input_tokens > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
            metrics::gauge!("annie_llm_cache_hit_ratio").set(cached_tokens as f64 / input_tokens as f64);
        }
        // Both under one lock: between them the round would count twice, and others would be refused.
        let of_round = self.of_round.as_ref();
        books.each(of_round.map(|(payer, _)| payer), &self.key, |account| {
            account.spent = account.spent.plus(spent);
            account.reserved = account.reserved.minus(needed);
        });
        if let Some((_, backend)) = of_round
            && spent.nanodollars > 0
            && spent.tokens > 0
        {
            books.prices.insert(backend.clone(), spent.nanodollars.saturating_mul(1_000) / spent.tokens);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let needed = self.needed;
        let mut books = self.ledger.books.lock();
        let payer = self.of_round.as_ref().map(|(payer, _)| payer);
        books.each(payer, &self.key, |account| account.reserved = account.reserved.minus(needed));
        drop(books);
        self.ledger.released.send_replace(());
    }
}

/// A bounded map: when the young half is full, it becomes the old half, and entries that were not used since are dropped.
struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Eq + Hash, V: Default> Recent<K, V> {
    fn entry(&mut self, key: K) -> &mut V {
        if self.young.len() >= EACH_MAX && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        let known = self.old.remove(&key);
        self.young.entry(key).or_insert_with(|| known.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use annie_testkit::env::env;

    use super::*;

    fn request(output_tokens_max: u32) -> ModelRequest {
        ModelRequest {
            model: None,
            system: Vec::new(),
            messages: Vec::new(),
            stable_messages: 0,
            tools: Vec::new(),
            skill_names: Vec::new(),
            output_tokens_max,
            session_id: String::new(),
            priority: 1,
            options: Default::default(),
        }
    }

    #[test]
    fn calls_that_the_log_knows_count_for_agents_that_do_not_know_them() {
        let (env, ledger) = (env(1), SpendLedger::new(SpendLimits::NONE));
        let payer = Payer {
            task: TaskId::from_uuid(env.uuid()),
            conversation: ConversationId::from_uuid(env.uuid()),
            user: UserId::local(),
            epoch: Epoch(2),
            spent_in_turn: Spent::default(),
            is_first_round: false,
            calls: None,
        };
        let (cap, now) = (CallCap { calls_max: 3, ..CallCap::default() }, env.now());
        let mut known = CallTimes::default();
        known.count(now, 2);
        ledger.know_calls(payer.conversation, &known);
        assert_eq!(ledger.count_call(&payer, cap, now), Ok(()));
        let main = Payer { calls: Some(known), ..payer.clone() };
        assert_eq!(
            ledger.count_call(&main, cap, now).map_err(|refusal| refusal.used),
            Err(3),
            "the sub-agent's call counts"
        );
        assert!(ledger.count_call(&payer, cap, now).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn round_is_refused_when_no_reservation_is_released_in_time() {
        let (env, user) = (env(1), UserId::new("ann").unwrap());
        let ledger = Arc::new(SpendLedger::new(SpendLimits { user_day_tokens_max: 3_000, ..SpendLimits::NONE }));
        let payer = || Payer {
            task: TaskId::from_uuid(env.uuid()),
            conversation: ConversationId::from_uuid(env.uuid()),
            user: user.clone(),
            epoch: Epoch(1),
            spent_in_turn: Spent::default(),
            is_first_round: true,
            calls: None,
        };
        let (facts, request, from) = (BackendFacts::default(), request(2_000), Instant::now());
        let reserve = async || {
            let (payer, mut releases) = (payer(), ledger.releases());
            loop {
                releases.mark();
                match ledger.reserve(&payer, &facts, (input_tokens(&request), request.output_tokens_max), env.now()) {
                    Err(refusal) if refusal.may_pass() && releases.wait().await => {}
                    decided => return decided,
                }
            }
        };
        let first = reserve().await.unwrap();
        let refusal = reserve().await.map(|_| ()).unwrap_err();
        assert!(refusal.text().contains("beside other steps under way"), "{}", refusal.text());
        assert_eq!(from.elapsed(), Duration::from_millis(RELEASED_MS_MAX));
        let used = |input_tokens| Usage { input_tokens, ..Usage::default() };
        let (second, ()) = tokio::join!(reserve(), async { first.settle(&used(100)) });
        assert!(second.is_ok(), "the first round has used less than it had reserved");
        drop(second);
        reserve().await.unwrap().settle(&used(2_900));
        let at = Instant::now();
        assert!(reserve().await.is_err(), "the cap is reached");
        assert_eq!(at.elapsed(), Duration::ZERO, "no round under way is in the way");
    }
}
