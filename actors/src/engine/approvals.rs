//! Approvals: the Engine records the requests of all agents of its turns and the decisions about them.

use annie_core::{
    approval::{ApprovalMode, ApprovalVerdict},
    ids::TaskId,
    skill::SkillSet,
    turn::{Approval, ApprovalStep, Decision, Turn},
};
use tokio::sync::oneshot;

use super::{
    control::{Decide, NotDecided},
    record,
    state::{Engine, EngineState},
};
use crate::{
    effects::ApprovalAsk,
    observe::{Context, NodeError},
};

/// Handles a call that needs an approval: replies if the verdict is known; otherwise keeps the reply channel, and records a new
/// request.
pub(super) async fn asked(ctx: &Context<Engine>, state: &mut EngineState, ask: ApprovalAsk) -> Result<(), NodeError> {
    let ApprovalAsk { task, agent, skill, mode, reply } = ask;
    let expires_at = ctx.now().later_ms(state.wiring.hooks.approval().expires_ms);
    match state.conv.approval_step(task, &skill, mode, expires_at) {
        // The turn is over. Its Tokio tasks are stopped, including the one that waits for this reply.
        None => Ok(()),
        Some(ApprovalStep::Answered(answer)) => {
            // The agent may have ended meanwhile.
            let _ = reply.send(answer);
            Ok(())
        }
        Some(ApprovalStep::Waits) => {
            state.approvals.insert((task, skill.intent), reply);
            Ok(())
        }
        Some(ApprovalStep::Request(body)) => {
            state.approvals.insert((task, skill.intent), reply);
            tracing::info!(%task, %agent, skill = %skill.skill, mode = mode.as_str(), "a call waits for an approval");
            metrics::counter!("annie_approvals_requested_total").increment(1);
            record::record(ctx, state, task, agent, body).await
        }
    }
}

/// Records a person's decision about a request.
pub(super) async fn decide(
    ctx: &Context<Engine>,
    state: &mut EngineState,
    task: TaskId,
    decide: Decide,
    reply: oneshot::Sender<Result<Approval, NotDecided>>,
) -> Result<(), NodeError> {
    if let Some(Decision { task, agent, body }) = state.conv.expired_approval(ctx.now()) {
        // The expiry timer may fire after this message. One expired request is recorded here, the others when the timer fires;
        // until then the check of `expires_at` below rejects decisions about them.
        record::record(ctx, state, task, agent, body).await?;
    }
    let found = {
        let skills = state.wiring.catalog.skills();
        let turn = state.conv.turn(task);
        turn.ok_or_else(ended).and_then(|turn| allowed(turn, &decide, &skills)).cloned()
    };
    let answer = match found {
        Ok(approval) if approval.expires_at <= ctx.now() => Err(NotDecided::Stale(already(&approval, "expired"))),
        Ok(approval) => {
            let body = approval.decided(decide.verdict.clone(), &decide.by, None);
            tracing::info!(%task, skill = %approval.skill, by = %decide.by, verdict = decide.verdict.state(), "approval decided");
            record::record(ctx, state, task, approval.agent.clone(), body).await?;
            Ok(Approval { verdict: Some(decide.verdict), by: decide.by, ..approval })
        }
        Err(why) => {
            record::record_decisions(ctx, state).await?;
            Err(why)
        }
    };
    if state.fenced {
        // Nothing is stored. The requester gets no answer, and asks the Engine that owns the conversation.
        return Ok(());
    }
    // The requester may be gone.
    let _ = reply.send(answer);
    Ok(())
}

fn ended() -> NotDecided {
    NotDecided::Stale("the task has ended, and none of its calls waits for an approval any more".to_owned())
}

fn already(approval: &Approval, state: &str) -> String {
    format!("request {} ({}) has {state} already", approval.number, approval.skill)
}

/// The request that the decision is about, if it may be decided in this way.
fn allowed<'a>(turn: &'a Turn, decide: &Decide, skills: &SkillSet) -> Result<&'a Approval, NotDecided> {
    let approval = requested(turn, decide.number)?;
    if let Some(verdict) = &approval.verdict {
        let state = match verdict {
            ApprovalVerdict::Expire => "expired".to_owned(),
            ApprovalVerdict::Approve { .. } | ApprovalVerdict::Deny { .. } | ApprovalVerdict::Withdraw => {
                format!("been {} by {}", verdict.state(), approval.by)
            }
        };
        return Err(NotDecided::Stale(already(approval, &state)));
    }
    let ApprovalVerdict::Approve { for_conversation, arguments } = &decide.verdict else { return Ok(approval) };
    if *for_conversation && approval.mode == ApprovalMode::Always {
        let skill = &approval.skill;
        let why = format!("every call of {skill} needs an approval of its own: approve this call only");
        return Err(NotDecided::Invalid(why));
    }
    let Some(arguments) = arguments else { return Ok(approval) };
    let skill = skills.get(&approval.skill);
    let skill = skill.ok_or_else(|| NotDecided::Stale(format!("there is no skill {} any more", approval.skill)))?;
    let fits = skill.check_replacement(&approval.arguments, arguments);
    fits.map_err(|what| NotDecided::Invalid(format!("these arguments do not fit {}: {what}", approval.skill)))?;
    Ok(approval)
}

/// The request with this number. Without a number: the only open request, or the last request if none is open, so that the caller
/// can report its verdict.
fn requested(turn: &Turn, number: Option<u32>) -> Result<&Approval, NotDecided> {
    if let Some(number) = number {
        return turn.approvals.iter().find(|approval| approval.number == number).ok_or(NotDecided::NotFound);
    }
    let open: Vec<&Approval> = turn.approvals.iter().filter(|approval| approval.verdict.is_none()).collect();
    match open[..] {
        [one] => Ok(one),
        // No request is open. The caller reports the verdict of the last one as an error.
        [] => turn.approvals.last().ok_or(NotDecided::NotFound),
        _ => {
            let numbers: Vec<String> = open.iter().map(|approval| approval.number.to_string()).collect();
            let why = format!("several calls of this task wait: give the number of one ({})", numbers.join(", "));
            Err(NotDecided::Invalid(why))
        }
    }
}
