//! The summary of the older part of a conversation, written by a model in the background: one call with a permit of its own. It is
//! not a task, so it takes no queue position, and rounds of users go first.

use std::{sync::Arc, time::Duration};

use annie_core::{
    event::Priority,
    ids::TaskId,
    message::{Finish, ModelReply, ModelRequest},
    route,
    turn::{CompactionWork, Summarised},
};

use crate::{
    scheduler::{AdmissionMsg, PermitRequest, RequestHandle, SchedulerMsg, Verdict, acquire},
    spend::{Payer, input_tokens},
    tasks::caught,
    wiring::{Backend, Wiring},
};

/// How long the call waits for its permit, in milliseconds. Afterwards the kernel makes the summary.
const WAIT_MS_MAX: u64 = 600_000;

/// Makes the Scheduler forget the call when it ends, however it ends.
struct Known(Arc<Wiring>, TaskId);

impl Drop for Known {
    fn drop(&mut self) {
        self.0.scheduler.tell(SchedulerMsg::Admission(AdmissionMsg::Forget { task: self.1 }));
    }
}

/// The summary, or why no model wrote it. It is not tried again: the kernel makes one without a model.
pub(crate) async fn summarise(wiring: &Arc<Wiring>, payer: Payer, work: CompactionWork) -> Summarised {
    let route = able(wiring, &work.route);
    if route.is_empty() {
        return Summarised::Not("no backend of the conversation has a language model".to_owned());
    }
    match call(wiring, &payer, &work, route).await {
        // A truncated summary lacks the newest part of what it stands for.
        Ok((reply, backend)) if reply.tool_calls.is_empty() && reply.finish == Finish::Stop => {
            Summarised::ByModel { text: reply.text, backend, usage: reply.usage }
        }
        Ok((reply, backend)) => Summarised::ByModel { text: String::new(), backend, usage: reply.usage },
        Err(why) => {
            tracing::info!(conversation = %payer.conversation, why, "no model summarised a conversation");
            Summarised::Not(why)
        }
    }
}

/// The backends of the route that can write a summary. An agentic backend would take the text for its task.
fn able(wiring: &Wiring, route: &[String]) -> Vec<String> {
    let first = || wiring.routing.facts.first().map(|facts| facts.name.clone()).into_iter().collect();
    let route: Vec<String> = if route.is_empty() { first() } else { route.to_vec() };
    let is_able = |backend: &Backend| !backend.facts.acts && backend.model.summarises();
    route.into_iter().filter(|name| wiring.backends.get(name).is_some_and(is_able)).collect()
}

async fn call(
    wiring: &Arc<Wiring>,
    payer: &Payer,
    work: &CompactionWork,
    route: Vec<String>,
) -> Result<(ModelReply, String), String> {
    let env = &wiring.env;
    let known = Known(Arc::clone(wiring), TaskId::from_uuid(env.uuid()));
    let wanted = PermitRequest {
        task: known.1,
        user: payer.user.clone(),
        conversation: payer.conversation,
        priority: Priority::Background,
        since: env.now(),
        after: Vec::new(),
        route,
        progress: None,
        is_task: false,
    };
    wiring.spend.read(wiring.store.as_ref(), payer, env.now()).await;
    let mut releases = wiring.spend.releases();
    let (permit, name, backend, reservation, output_tokens_max) = loop {
        releases.mark();
        let handle = RequestHandle::default();
        let permit = acquire(&wiring.scheduler, wanted.clone(), &handle);
        let permit = tokio::time::timeout(Duration::from_millis(WAIT_MS_MAX), permit).await;
        let permit = permit.map_err(|_| "no backend was free in time".to_owned())?.map_err(|why| why.to_string())?;
        let name = permit.backend().to_owned();
        let backend = wiring.backends.get(&name).ok_or_else(|| "its backend is gone".to_owned())?;
        let output_tokens_max = route::output_tokens(&work.request, &backend.facts, wiring.leases.window(&name));
        let asked_for = (input_tokens(&work.request), output_tokens_max);
        match wiring.spend.reserve(payer, &backend.facts, asked_for, env.now()) {
            Ok(reservation) => break (permit, name, backend, reservation, output_tokens_max),
            Err(refusal) => {
                permit.give_back(0, Verdict::Unused);
                // Others may use the backend while this call waits for what rounds under way have reserved.
                let asked = (&backend.facts, asked_for);
                let waits = refusal.may_pass();
                if !(waits && wiring.spend.may_fit_in_time(&mut releases, payer, asked, env).await) {
                    return Err(refusal.into_error(env.now()).to_string());
                }
            }
        }
    };
    let request = ModelRequest { output_tokens_max, ..work.request.clone() };
    let from_us = env.clock.monotonic_us();
    let ms_max = backend.round_ms_max.unwrap_or(wiring.limits.round_ms_max);
    let asked = caught(backend.model.call(&request, Arc::new(|_| {})));
    let result = match tokio::time::timeout(Duration::from_millis(ms_max), asked).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => {
            permit.give_back(0, Verdict::Unused);
            return Err(format!("the client panicked: {panic}"));
        }
        Err(_) => {
            permit.give_back(ms_max, Verdict::Unused);
            return Err(format!("no complete answer within {} s", ms_max / 1_000));
        }
    };
    let ran_ms = env.clock.monotonic_us().saturating_sub(from_us) / 1_000;
    permit.give_back(ran_ms, Verdict::of(&result));
    let reply = result.map_err(|error| error.to_string())?;
    reservation.settle(&reply.usage);
    Ok((reply, name))
}
