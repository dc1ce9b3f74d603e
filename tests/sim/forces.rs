//! External disturbances of the process: by operators, power cuts and the clock; and the senders of results of
//! long-running operations.

use std::{sync::Arc, time::Duration};

use annie_actors::{KernelError, Operation, OperationResult};
use annie_core::ids::ConversationId;

use super::{
    disk::Health,
    town::{Process, Town, pass_ms},
};

pub const SKILLS: [&str; 7] = ["sim.look", "sim.fetch", "sim.put", "sim.save", "sim.send", "sim.ring", "sim.order"];

/// An operator kills, stops or restarts the actor at a position of the tree.
pub async fn operate_on_actor(town: Arc<Town>, position: u64, what: &str) {
    let kernel = town.process().await.kernel;
    let tree = kernel.tree();
    if tree.is_empty() {
        return;
    }
    let node = &tree[usize::try_from(position % tree.len() as u64).unwrap_or(0)];
    let operation = match what {
        "kill" => Operation::Kill,
        "stop" => Operation::Stop,
        _ => Operation::Restart,
    };
    // The actor may be gone by now.
    let _ = kernel.operate(node.path.as_str(), Some(node.incarnation), operation, "the simulation").await;
    town.watch.breakers_uncertain();
}

/// A user speaks: the voice gate of one backend is held.
pub async fn gate(town: Arc<Town>, backend: u64, ms: u64) {
    let Process { kernel, run } = town.process().await;
    let names = town.backends();
    let name = &names[usize::try_from(backend % names.len() as u64).unwrap_or(0)];
    let Ok(grant) = kernel.hold_gate(name, "the speaker", ms).await else { return };
    town.watch.gate_closes(name, grant.until, run.number);
    pass_ms(ms / 2).await;
    if ms.is_multiple_of(2) {
        town.watch.gates_open();
        let _ = kernel.release_gate(name, "the speaker").await;
    }
}

/// A power cut: nothing is notified, nothing is closed.
pub async fn power_cut(town: Arc<Town>) {
    let process = town.process().await;
    process.run.set_health(Health::Dead);
    town.lose(&process);
    process.kernel.crash().await;
}

/// An operator shuts the process down.
pub async fn restart(town: Arc<Town>) {
    let process = town.process().await;
    stop(&town, &process).await;
}

/// Shuts a process down and checks that it stops within its time and leaves no actor.
pub async fn stop(town: &Town, process: &Process) {
    let stopped = tokio::time::timeout(Duration::from_secs(60), process.kernel.stop()).await;
    if process.run.is(Health::Runs) {
        if stopped.is_err() {
            town.watch.wrong(format!("the process does not stop: {:?}", paths(process)));
        }
        // Actors that were killed because they did not stop in time may need a moment to end.
        pass_ms(1_000).await;
        let left = paths(process);
        if !left.is_empty() {
            town.watch.wrong(format!("stopped, and these are still alive: {left:?}"));
        }
    }
    process.run.set_health(Health::Dead);
    town.lose(process);
}

fn paths(process: &Process) -> Vec<String> {
    process.kernel.tree().iter().map(|node| node.path.to_string()).collect()
}

/// The process freezes, another one claims its conversations, and then the first one continues: every later write of it
/// must be refused.
pub async fn freeze(town: Arc<Town>, ms: u64, awake_ms: u64) {
    let process = town.process().await;
    town.watch.two_processes();
    process.run.set_health(Health::Frozen);
    town.use_another_folder();
    town.lose(&process);
    pass_ms(ms).await;
    if process.run.is(Health::Frozen) {
        process.run.set_health(Health::Stale);
        pass_ms(awake_ms).await;
    }
    process.run.set_health(Health::Dead);
    process.kernel.crash().await;
}

/// The wall clock is set.
pub fn jump(town: &Town, ms: i64) {
    town.watch.gates_open();
    town.clock.set_by_ms(ms);
    town.watch.breakers_uncertain();
}

/// An operator closes breakers and takes conversations out of quarantine.
pub async fn tidy(town: Arc<Town>) {
    let kernel = town.process().await.kernel;
    for skill in SKILLS {
        let _ = kernel.reset_breaker(skill).await;
    }
    town.watch.breakers_uncertain();
    let view = kernel.view("/conversations").await.ok().and_then(|(_, view)| view);
    let quarantined = view.as_ref().and_then(|v| v["quarantine"].as_array()).cloned().unwrap_or_default();
    for id in quarantined.iter().filter_map(|id| id.as_str()?.parse::<ConversationId>().ok()) {
        let _ = kernel.resume_conversation(id).await;
    }
}

/// Brings the results of operations when they are due.
pub async fn bring_results(town: Arc<Town>) {
    while !town.is_over() {
        pass_ms(100).await;
        for operation in town.skills.due(town.clock_now()) {
            let Some(process) = town.present() else {
                town.skills.put_back(operation);
                continue;
            };
            let result = OperationResult { ok: true, text: "it has come".to_owned(), ..OperationResult::default() };
            let brought = process.kernel.finish_operation(operation.id, &operation.key, result);
            match tokio::time::timeout(Duration::from_secs(20), brought).await {
                Ok(Ok(sent)) => town.brought(sent.task),
                // The operation has expired, or it has its result already.
                Ok(Err(KernelError::Stale(_))) => {}
                Ok(Err(KernelError::NotFound(_))) if operation.due.plus_ms(120_000) < town.clock_now() => {}
                Ok(Err(KernelError::Invalid(why))) => town.watch.wrong(format!("a result was refused: {why}")),
                Ok(Err(_)) | Err(_) => {
                    town.skills.put_back(operation);
                    continue;
                }
            }
            town.skills.brought();
        }
    }
}
