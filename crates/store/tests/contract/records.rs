//! The projections.

use std::sync::Arc;

use annie_core::{
    event::{EventBody, NewEvent, Priority, Scope},
    ids::{OutboxId, Seq},
    message::Usage,
    outcome::Outcome,
    ports::{ConversationRow, Store, TaskRow, TaskState},
    skill::Effect,
    spend::{Day, UsageBy, UsageQuery, UsageRow},
    time::Micros,
};

use crate::make::*;

pub async fn task_moves_from_queued_to_its_end_and_never_leaves_it(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 10).await;
    let row = async || store.task(of("ann"), task(1)).await.unwrap().unwrap();
    let queued = TaskRow {
        id: task(1),
        user: user("ann"),
        conversation: c,
        state: TaskState::Queued,
        priority: Priority::High,
        source: "http".into(),
        title: "Hello there".into(),
        received_at: Micros(10),
        not_before: None,
        after: Vec::new(),
        is_job_command: false,
        is_steer: false,
        joins: None,
        held_at: None,
        has_model_failed: false,
        started_at: None,
        ended_at: None,
        error: None,
    };
    assert_eq!(row().await, queued);
    commit(&*store, owned(c, "ann", epoch, vec![started(task(1), 20)])).await.unwrap();
    commit(&*store, owned(c, "ann", epoch, vec![started(task(1), 25)])).await.unwrap();
    let running = TaskRow { state: TaskState::Running, started_at: Some(Micros(20)), ..queued };
    assert_eq!(row().await, running);
    commit(&*store, owned(c, "ann", epoch, vec![answered(task(1), "Hi", 30)])).await.unwrap();
    let ended = TaskRow { state: TaskState::Completed, ended_at: Some(Micros(30)), ..running };
    assert_eq!(row().await, ended);
    let late = vec![failed(task(1), "late", 40), started(task(1), 41), cancelled(task(1), 42)];
    commit(&*store, owned(c, "ann", epoch, late)).await.unwrap();
    assert_eq!(row().await, ended);
    let words: Vec<String> = store.outbox(10).await.unwrap().into_iter().map(|row| row.text).collect();
    assert_eq!(words, ["Hi"]);
}

pub async fn failed_task_keeps_its_error_code(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    commit(&*store, inbox(c, "ann", vec![received(task(2), "b", "x", 2)])).await.unwrap();
    let ends = vec![failed(task(1), "model_unavailable", 3), cancelled(task(2), 4)];
    commit(&*store, owned(c, "ann", epoch, ends)).await.unwrap();
    let end = async |t| {
        let row = store.task(of("ann"), t).await.unwrap().unwrap();
        (row.state, row.ended_at, row.error)
    };
    assert_eq!(end(task(1)).await, (TaskState::Failed, Some(Micros(3)), Some("model_unavailable".to_owned())));
    assert_eq!(end(task(2)).await, (TaskState::Cancelled, Some(Micros(4)), None));
}

pub async fn events_change_the_state_of_tasks_of_their_own_conversation_only(store: Arc<dyn Store>) {
    opened(&*store, conversation(1), "ann", task(1), 1).await;
    let epoch = opened(&*store, conversation(2), "bob", task(2), 1).await;
    let foreign = owned(conversation(2), "bob", epoch, vec![cancelled(task(1), 2)]);
    commit(&*store, foreign).await.unwrap();
    assert_eq!(store.task(of("ann"), task(1)).await.unwrap().unwrap().state, TaskState::Queued);
}

pub async fn user_cannot_see_data_of_another_user(store: Arc<dyn Store>) {
    let c = conversation(1);
    opened(&*store, c, "ann", task(1), 1).await;
    let far = Micros(i64::MAX);
    for (scope, seen) in
        [(of("bob"), 0), (of("Ann"), 0), (of("ann' OR '1'='1"), 0), (of("ann"), 1), (Scope::Operator, 1)]
    {
        let found = [
            store.conversation(scope.clone(), c).await.unwrap().iter().count(),
            store.conversations(scope.clone(), far.into(), 10).await.unwrap().len(),
            store.task(scope.clone(), task(1)).await.unwrap().iter().count(),
            store.tasks(scope.clone(), false, far.into(), 10).await.unwrap().len(),
            store.tasks(scope.clone(), true, far.into(), 10).await.unwrap().len(),
            store.events(scope.clone(), c, Seq(0), 10).await.unwrap().len(),
        ];
        assert_eq!(found, [seen; 6], "{scope:?}");
    }
}

pub async fn pages_are_newest_first_and_continue_before_an_instant(store: Arc<dyn Store>) {
    for n in 1..=5 {
        opened(&*store, conversation(n), "ann", task(n), 10 * n as i64).await;
    }
    let epoch = store.claim(conversation(3), node(1)).await.unwrap().unwrap().epoch;
    commit(&*store, owned(conversation(3), "ann", epoch, vec![answered(task(3), "x", 35)])).await.unwrap();
    for scope in [of("ann"), Scope::Operator] {
        let tasks = async |open, before, limit| -> Vec<_> {
            let rows = store.tasks(scope.clone(), open, Micros(before).into(), limit).await.unwrap();
            rows.into_iter().map(|row| row.id).collect()
        };
        assert_eq!(tasks(false, i64::MAX, 2).await, [5, 4].map(task));
        assert_eq!(tasks(false, 40, 9).await, [3, 2, 1].map(task));
        assert_eq!(tasks(true, i64::MAX, 3).await, [5, 4, 2].map(task));
        let page = store.conversations(scope.clone(), Micros(45).into(), 2).await.unwrap();
        assert_eq!(page.iter().map(|row| row.id).collect::<Vec<_>>(), [4, 3].map(conversation));
        assert_eq!(store.conversations(scope.clone(), Micros(35).into(), 9).await.unwrap().len(), 2);
    }
}

pub async fn stateless_conversations_are_left_out_of_lists(store: Arc<dyn Store>) {
    let stateless = |n: u128, at: i64| {
        let mut event = received(task(n), &n.to_string(), "x", at);
        let EventBody::Received(inbound) = &mut event.body else { panic!("a message") };
        inbound.stateless = true;
        event
    };
    opened(&*store, conversation(1), "ann", task(1), 10).await;
    commit(&*store, inbox(conversation(2), "ann", vec![stateless(2, 20)])).await.unwrap();
    commit(&*store, inbox(conversation(3), "ann", vec![stateless(3, 30)])).await.unwrap();
    // A message that is not stateless makes the conversation an ordinary one.
    commit(&*store, inbox(conversation(3), "ann", vec![received(task(4), "4", "x", 40)])).await.unwrap();
    let far = Micros(i64::MAX);
    for scope in [of("ann"), Scope::Operator] {
        let listed = store.listed_conversations(scope.clone(), far.into(), 9).await.unwrap();
        assert_eq!(listed.iter().map(|row| row.id).collect::<Vec<_>>(), [3, 1].map(conversation));
        let all = store.conversations(scope.clone(), far.into(), 9).await.unwrap();
        assert_eq!(all.iter().map(|row| row.stateless).collect::<Vec<_>>(), [false, true, false]);
    }
    assert!(store.listed_conversations(of("bob"), far.into(), 9).await.unwrap().is_empty());
    store.rebuild().await.unwrap();
    assert!(store.conversation(of("ann"), conversation(2)).await.unwrap().unwrap().stateless);
}

pub async fn conversation_title_is_its_first_words(store: Arc<dyn Store>) {
    let c = conversation(1);
    let text = format!("\n  \n {} \nsecond line", "é".repeat(100));
    commit(&*store, inbox(c, "ann", vec![received(task(1), "a", "   ", 10)])).await.unwrap();
    commit(&*store, inbox(c, "ann", vec![received(task(2), "b", &text, 20)])).await.unwrap();
    commit(&*store, inbox(c, "ann", vec![received(task(3), "c", "Another", 15)])).await.unwrap();
    let wanted = ConversationRow {
        id: c,
        user: user("ann"),
        title: "é".repeat(80),
        last_seq: Seq(3),
        epoch: annie_core::ids::Epoch(0),
        owner: None,
        created_at: Micros(10),
        updated_at: Micros(20),
        stateless: false,
        deleted_at: None,
    };
    assert_eq!(store.conversation(of("ann"), c).await.unwrap(), Some(wanted));
}

pub async fn open_conversations_are_those_with_open_tasks(store: Arc<dyn Store>) {
    for n in 1..=4 {
        let epoch = opened(&*store, conversation(n), "ann", task(n), 100 - n as i64).await;
        if n == 2 {
            commit(&*store, owned(conversation(n), "ann", epoch, vec![started(task(n), 100)])).await.unwrap();
        }
        if n == 3 {
            commit(&*store, owned(conversation(n), "ann", epoch, vec![answered(task(n), "x", 100)])).await.unwrap();
        }
    }
    commit(&*store, inbox(conversation(1), "ann", vec![received(task(9), "z", "x", 200)])).await.unwrap();
    let open = store.open_conversations().await.unwrap();
    assert_eq!(open, [4, 2, 1].map(|n| (conversation(n), user("ann"))));
}

pub async fn tables_are_the_same_after_a_rebuild_and_deliveries_are_kept(store: Arc<dyn Store>) {
    for n in 1..=6 {
        let c = conversation(n);
        let name = if n % 2 == 0 { "ann" } else { "bob" };
        let epoch = opened(&*store, c, name, task(n), n as i64).await;
        let calls =
            vec![planned(intent(n), "mail.send", Effect::Once), planned(intent(n + 50), "a.b", Effect::Idempotent)];
        let mut events = vec![started(task(n), 10), plans(task(n), calls, 11), run_started(task(n), intent(n), 12)];
        match n {
            1 => events.push(run_finished(task(n), intent(n), Outcome::success("sent"), 13)),
            2 => events.push(answered(task(n), "done", 14)),
            3 => events.extend([failed(task(n), "broken", 14), answered(task(n), "too late", 15)]),
            4 => events.push(cancelled(task(n), 9)),
            _ => events.push(run_started(task(n), intent(n + 50), 13)),
        }
        commit(&*store, owned(c, name, epoch, events)).await.unwrap();
    }
    store
        .put_snapshot(
            conversation(1),
            annie_core::ids::Epoch(1),
            annie_core::ports::Snapshot { seq: Seq(1), v: 1, state: "{}".into() },
        )
        .await
        .unwrap();
    store.delivered(vec![OutboxId::for_task(task(3))], Micros(99)).await.unwrap();
    let picture = async || {
        let far = Micros(i64::MAX);
        let mut intents = Vec::new();
        for n in 1..=6 {
            intents.push(store.intents(task(n)).await.unwrap());
        }
        (
            store.conversations(Scope::Operator, far.into(), 100).await.unwrap(),
            store.tasks(Scope::Operator, false, far.into(), 100).await.unwrap(),
            store.open_conversations().await.unwrap(),
            store.outbox(100).await.unwrap(),
            store.snapshot(conversation(1)).await.unwrap(),
            intents,
        )
    };
    let before = picture().await;
    assert_eq!(before.3.len(), 2);
    assert_eq!(store.rebuild().await.unwrap(), 6 * 5 + 1);
    assert_eq!(picture().await, before);
    assert_eq!(store.rebuild().await.unwrap(), 31);
    let repeat =
        commit(&*store, inbox(conversation(1), "bob", vec![received(task(70), &task(1).to_string(), "x", 1)])).await;
    assert!(matches!(repeat, Err(annie_core::ports::AppendError::Duplicate { same: false, .. })), "{repeat:?}");
    let known = store.message(user("bob"), task(1).to_string()).await.unwrap().expect("it was accepted");
    let text_sha256 = annie_core::projection::text_sha256;
    assert!(known.task == task(1) && known.conversation == conversation(1) && known.text_sha256 != text_sha256("x"));
    assert_eq!(store.message(user("ann"), task(1).to_string()).await.unwrap(), None);
    let start = owned(conversation(1), "bob", annie_core::ids::Epoch(1), vec![run_started(task(1), intent(1), 20)]);
    assert!(commit(&*store, start).await.is_err());
    let next = inbox(conversation(1), "bob", vec![received(task(71), "new", "x", 1)]);
    assert_eq!(commit(&*store, next).await.unwrap().first, Seq(6));
}

/// A reply that used this much of a backend, and called these skills.
fn used(n: u128, at: i64, backend: &str, skills: &[&str], (input, output): (u64, u64), cost_usd: f64) -> NewEvent {
    let calls =
        skills.iter().zip(1..).map(|(skill, call)| planned(intent(100 * n + call), skill, Effect::Read)).collect();
    let mut event = replied(task(n), annie_core::ids::AgentId::orchestrator(), calls, at);
    if let EventBody::ModelReplied { usage, backend: by, .. } = &mut event.body {
        *by = backend.to_owned();
        *usage = Usage { input_tokens: input, output_tokens: output, cached_tokens: 1, cost_usd, ..Usage::default() };
    }
    event
}

const DAY_US: i64 = 86_400_000_000;

/// Ann has two conversations and two days, Bob one of each.
async fn with_usage(store: &dyn Store) {
    let epoch = opened(store, conversation(1), "ann", task(1), 1).await;
    let rounds = vec![
        used(1, 2, "main", &["web.fetch", "tasks.get", "web.fetch"], (100, 10), 0.01),
        used(1, 3, "main", &[], (50, 5), 0.002),
        // The offline planner counts nothing.
        used(1, 4, "offline", &[], (0, 0), 0.0),
        used(1, DAY_US + 1, "local", &[], (1_000, 1), 0.0),
    ];
    let rounds = rounds.into_iter().map(|mut event| {
        if let EventBody::ModelReplied { usage, backend, .. } = &mut event.body
            && backend == "offline"
        {
            *usage = Usage::default();
        }
        event
    });
    commit(store, owned(conversation(1), "ann", epoch, rounds.collect())).await.unwrap();
    let epoch = opened(store, conversation(2), "ann", task(2), 1).await;
    commit(store, owned(conversation(2), "ann", epoch, vec![used(2, 2, "main", &[], (7, 3), 0.000_000_001)]))
        .await
        .unwrap();
    let epoch = opened(store, conversation(3), "bob", task(3), 1).await;
    commit(store, owned(conversation(3), "bob", epoch, vec![used(3, 2, "main", &[], (9, 9), 5.0)])).await.unwrap();
}

/// The sums of a query as (key, rounds, tokens, nanodollars).
async fn sums(store: &dyn Store, query: UsageQuery) -> Vec<(String, u64, u64, u64)> {
    let rows = store.usage(UsageQuery { limit: 10, ..query }).await.unwrap();
    let row = |row: UsageRow| {
        assert_eq!(row.totals.cached_tokens, row.totals.rounds, "one cached token a round");
        (row.key, row.totals.rounds, row.totals.spent().tokens, row.totals.nanodollars)
    };
    rows.into_iter().map(row).collect()
}

pub async fn usage_is_summed_by_each_key_and_within_its_borders(store: Arc<dyn Store>) {
    with_usage(&*store).await;
    let ann = |by| UsageQuery::all(by, Some(user("ann")));
    let row = |key: &str, rounds, tokens, money| (key.to_owned(), rounds, tokens, money);
    for (query, wanted) in [
        (ann(UsageBy::All), vec![row("", 4, 1_176, 12_000_001)]),
        (ann(UsageBy::Day), vec![row("1970-01-02", 1, 1_001, 0), row("1970-01-01", 3, 175, 12_000_001)]),
        (ann(UsageBy::User), vec![row("ann", 4, 1_176, 12_000_001)]),
        (ann(UsageBy::Skill), vec![row("tasks.get, web.fetch", 1, 110, 10_000_000), row("", 3, 1_066, 2_000_001)]),
        (ann(UsageBy::Backend), vec![row("main", 3, 175, 12_000_001), row("local", 1, 1_001, 0)]),
        (
            ann(UsageBy::Conversation),
            vec![row(&conversation(1).to_string(), 3, 1_166, 12_000_000), row(&conversation(2).to_string(), 1, 10, 1)],
        ),
        (UsageQuery { to: Day(0), ..ann(UsageBy::All) }, vec![row("", 3, 175, 12_000_001)]),
        (UsageQuery { from: Day(2), ..ann(UsageBy::All) }, vec![]),
        (UsageQuery { conversation: Some(conversation(2)), ..ann(UsageBy::All) }, vec![row("", 1, 10, 1)]),
        (UsageQuery { conversation: Some(conversation(3)), ..ann(UsageBy::All) }, vec![]),
        (
            UsageQuery::all(UsageBy::User, None),
            vec![row("bob", 1, 18, 5_000_000_000), row("ann", 4, 1_176, 12_000_001)],
        ),
        (UsageQuery::all(UsageBy::All, Some(user("eve"))), vec![]),
    ] {
        assert_eq!(sums(&*store, query.clone()).await, wanted, "{query:?}");
    }
    let most = UsageQuery { limit: 1, ..UsageQuery::all(UsageBy::User, None) };
    assert_eq!(store.usage(most).await.unwrap().len(), 1);
}

pub async fn absurd_usage_of_a_broken_server_does_not_keep_a_conversation_from_being_stored(store: Arc<dyn Store>) {
    let epoch = opened(&*store, conversation(5), "ann", task(5), 1).await;
    for at in [2, 3, 4] {
        let rounds = vec![used(5, at, "main", &[], (u64::MAX, u64::MAX), 1e300)];
        commit(&*store, owned(conversation(5), "ann", epoch, rounds)).await.unwrap();
    }
    let [(_, rounds, tokens, money)] = &sums(&*store, UsageQuery::all(UsageBy::All, Some(user("ann")))).await[..]
    else {
        panic!("one row")
    };
    assert_eq!((*rounds, *tokens), (3, 6 * Usage::TOKENS_MAX));
    assert_eq!(*money, 3_000_000 * 1_000_000_000);
}

pub async fn usage_of_one_batch_and_after_a_rebuild_is_the_same(store: Arc<dyn Store>) {
    with_usage(&*store).await;
    let epoch = opened(&*store, conversation(4), "ann", task(4), 1).await;
    for at in [5, 6] {
        // The same row in one batch twice, and again in a later batch.
        let rounds = vec![used(4, at, "main", &[], (10, 1), 0.1), used(4, at, "main", &[], (10, 1), 0.1)];
        commit(&*store, owned(conversation(4), "ann", epoch, rounds)).await.unwrap();
    }
    let of_four =
        UsageQuery { conversation: Some(conversation(4)), ..UsageQuery::all(UsageBy::All, Some(user("ann"))) };
    assert_eq!(sums(&*store, of_four.clone()).await, [(String::new(), 4, 44, 400_000_000)]);
    let all = sums(&*store, UsageQuery::all(UsageBy::Conversation, None)).await;
    store.rebuild().await.unwrap();
    assert_eq!(sums(&*store, UsageQuery::all(UsageBy::Conversation, None)).await, all);
}
