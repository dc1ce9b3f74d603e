//! A log that is away for a moment costs time, and nobody's work.

use std::sync::Arc;

use annie_actors::Submission;
use annie_core::{
    event::{Event, EventBody, ReportStatus},
    ports::FaultAction,
};
use annie_testkit::faults::FaultPlan;

use crate::{
    flow::kernel::two_agents,
    world::{WorldParts, ann, check_log},
};

fn reports(log: &[Event]) -> Vec<ReportStatus> {
    let status = |e: &Event| if let EventBody::AgentReported { report } = &e.body { Some(report.status) } else { None };
    log.iter().filter_map(status).collect()
}

/// One commit after the other is stored or not, and nobody hears which: no agent is called crashed over it, and nothing of the
/// message's budget of deaths is used up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_go_on_after_any_commit_of_which_nobody_hears() {
    for point in ["before", "after"] {
        for nth in 0.. {
            let plan = Arc::new(FaultPlan::once_at("commit", point, nth, FaultAction::Panic));
            let world = WorldParts::new(|request, _| Ok(two_agents(request))).faults(plan.clone()).start().await;
            let Ok(said) = world.kernel.submit(Submission::new(ann(), "test", "do both")).await else {
                // The message itself was not acknowledged.
                world.kernel.stop().await;
                continue;
            };
            world.answer(&said).await;
            let log = world.log(said.conversation).await;
            check_log(&log);
            assert_eq!(reports(&log), [ReportStatus::Completed; 2], "{point} commit {nth}: {log:#?}");
            let resumed = log.iter().filter(|e| matches!(e.body, EventBody::Resumed { .. })).count();
            assert_eq!(resumed, 0, "{point} commit {nth}");
            world.kernel.stop().await;
            if plan.struck().is_empty() {
                assert!(nth > 5, "a turn with two agents has more commits than {nth}");
                break;
            }
        }
    }
}
