//! What holds for runs of workflows as for all other turns, through the real binary: rules about channels, untrusted text,
//! and what is refused before the first step.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use annie::grpc::v1::{RunWorkflowRequest, workflows_client::WorkflowsClient};
use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use super::{
    bad_models::{ask, server_with},
    mcp::{connected, program},
    prompt_skills,
    untrusted::effects,
    workflows::{ERRAND, end_of, ended, put, run, server_of, start, state, steps},
};
use crate::{server::Server, world::eventually};

/// The state of a run that waits for a person or has ended.
async fn waiting_or_ended(server: &Server, task: &str) -> Value {
    eventually("the run waits for a person or ends", async || {
        let run = state(server, task).await;
        let is_ended = ["completed", "failed", "cancelled"].iter().any(|end| run["status"] == *end);
        (run["awaits_approval"] == true || is_ended).then_some(run)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_about_a_channel_hold_for_a_run_that_was_started_over_it() {
    let add = "\
name: add
description: Creates a to-do.
steps:
  - {id: add, skill: tasks.create, args: {title: milk}, next: [{on: denied, to: refused}]}
  - {id: say, answer: \"added: {steps.add.result}\"}
  - {id: refused, answer: \"refused: {steps.add.result}\"}
";
    let config = "\
[approval]
rules = [{ mode = \"ask\", when = { skills = [\"tasks.create\"], channels = [\"http\"] } }]
[[hook]]
name = \"no-grpc\"
point = \"before_skill\"
kind = \"refuse\"
text = \"Not from there.\"
when = { skills = [\"tasks.create\"], channels = [\"grpc\"] }
";
    let (_folder, server) = server_of(config, &[add]).await;
    let (task, conversation) = start(&server, "add", json!({})).await;
    let run = waiting_or_ended(&server, &task).await;
    assert_eq!(run["awaits_approval"], true, "the rule about http holds: {run}");
    let (status, _) = server.post(&format!("/api/v1/approvals/{task}/deny"), &json!({})).await.expect("an answer");
    assert_eq!(status, 200);
    ended(&server, &task).await;
    let end = end_of(&server, &conversation).await;
    assert!(end["text"].as_str().is_some_and(|text| text.starts_with("refused: ")), "{end}");

    let mut client = WorkflowsClient::connect(server.url.clone()).await.expect("connected");
    let asked = RunWorkflowRequest { name: "add".to_owned(), ..RunWorkflowRequest::default() };
    let started = client.run(asked).await.expect("started").into_inner();
    let run = waiting_or_ended(&server, &started.task_id).await;
    assert_eq!(run["awaits_approval"], false, "the rule about http does not hold for gRPC: {run}");
    let end = end_of(&server, &started.conversation_id).await;
    assert!(end["text"].as_str().is_some_and(|text| text.contains("Not from there.")), "{end}");
}

/// Texts of 60 bytes each.
fn long_titles() -> String {
    ["tea", "milk", "salt", "rice", "flour"].map(|word| format!("\"{word}{}\"", "x".repeat(60 - word.len()))).join(", ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fan_out_over_a_list_that_was_cut_fails_before_its_first_call() {
    let text = |name: &str, of: &str| {
        format!(
            "\
name: {name}
description: Makes a to-do for each to-do.
steps:
  - id: make
    each: {{of: '[{}]', skill: tasks.create, args: {{title: \"{{item}}\"}}}}
  - {{id: list, skill: tasks.search}}
  - id: copy
    each: {{of: \"{of}\", skill: tasks.create, args: {{title: \"copy {{item}}\"}}}}
",
            long_titles()
        )
    };
    let json = text("json", "{steps.make.result}");
    let lines = text("lines", "{steps.list.result}");
    let mixed = text("mixed", "{steps.list.result}\\n{steps.make.result}");
    let (_folder, server) = server_of("[workflows]\nvalue_bytes_max = 200\n", &[&json, &lines, &mixed]).await;
    for name in ["json", "lines", "mixed"] {
        let (task, conversation) = start(&server, name, json!({})).await;
        let shown = ended(&server, &task).await;
        let why = shown["failure"].as_str().unwrap_or_default();
        assert!(why.contains("`copy` failed") && why.contains("not whole"), "{name}: {shown}");
        assert!(why.contains("value_bytes_max"), "the text says how to go on: {shown}");
        assert_eq!(steps(&shown)[2], "copy failed failed", "{shown}");
        end_of(&server, &conversation).await;
    }
    let made = run(&server, "tasks.search --query copy").await;
    assert!(!made.contains("copy tea") && !made.contains("copy ["), "no call is made with a part of the list: {made}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mission_with_long_results_keeps_their_frames_and_the_instructions_behind_them() {
    let brief = "\
name: brief
description: Summarises.
steps:
  - {id: make, skill: notes.create, args: {title: long, content: \"{args.text}\"}}
  - {id: one, skill: notes.read, args: {title: long}}
  - {id: two, skill: notes.read, args: {title: long}}
  - {id: three, skill: notes.read, args: {title: long}}
  - id: sum
    agent: \"Compare {steps.one.result} with {steps.two.result} and {steps.three.result}. In the end, say SAFFRON.\"
arguments:
  text: {type: text, required: true}
";
    let model = FakeModelServer::start(|seen| {
        let text = seen.last_user_text();
        let framed = (text.matches("<result").count(), text.matches("</result").count());
        let ids = ["one", "two", "three"].iter().filter(|id| text.contains(&format!("step=\"{id}\""))).count();
        let is_whole = framed == (3, 3) && ids == 3 && text.contains("In the end, say SAFFRON.");
        let is_cut = text.matches("[cut: the first").count() == 3;
        Reply::says(if is_whole && is_cut { "SAFFRON".to_owned() } else { format!("broken: {framed:?} {text}") })
    })
    .await;
    let (folder, server) = server_with(&model, "[workflows]\nvalue_bytes_max = 600\n").await;
    put(folder.path(), &[brief]);
    let (task, conversation) = start(&server, "brief", json!({"text": "tea and rice. ".repeat(150)})).await;
    ended(&server, &task).await;
    assert_eq!(end_of(&server, &conversation).await["text"], "SAFFRON");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_that_names_a_skill_that_does_not_exist_is_refused_before_its_first_step() {
    let gone = "\
name: gone
description: Creates a to-do and then fails.
steps:
  - {id: add, skill: tasks.create, args: {title: never}}
  - {id: send, skill: tasks.creat}
  - {id: ask, agent: look, skills: [notes.serch]}
";
    let (_folder, server) = server_of("", &[gone]).await;
    let (status, refused) = server.post("/api/v1/workflows/gone/run", &json!({})).await.expect("an answer");
    assert_eq!(status, 400, "{refused}");
    let answered = ask(&server, "/gone").await;
    for text in [refused.to_string(), answered["answer"].to_string()] {
        for part in ["workflows/gone.md", "step `send`", "tasks.creat`", "step `ask`", "notes.serch`"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    let made = run(&server, "tasks.search --status open").await;
    assert!(!made.contains("#1"), "no step was done: {made}");
    let (_, list) = server.get("/api/v1/workflows").await;
    assert_eq!(list["workflows"][0]["problems"].as_array().map(Vec::len), Some(2), "{list}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workflow_with_the_name_of_a_command_is_a_problem_and_is_not_run() {
    let named = |name: &str| format!("name: {name}\ndescription: Says tea.\nsteps:\n  - {{id: say, answer: tea}}\n");
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (folder, server) = server_with(&model, "mode = \"single_loop\"").await;
    let skills = [
        ("minutes", "", "Write down every decision."),
        ("inner", "user-invocable: false", "Write down what the others said."),
    ];
    prompt_skills::put(&folder, &server, &skills).await;
    let taken = ["minutes", "inner", "help", "done"];
    let files: Vec<String> = taken.iter().chain(&["tea"]).map(|name| named(name)).collect();
    put(folder.path(), &files.iter().map(String::as_str).collect::<Vec<_>>());
    for name in taken {
        let (_, file) = server.get(&format!("/api/v1/workflows/{name}")).await;
        let problem = file["problems"][0].as_str().unwrap_or_default();
        assert!(problem.contains(&format!("`/{name}`")) && problem.contains("rename"), "{file}");
        let path = format!("/api/v1/workflows/{name}/run");
        let (status, refused) = server.post(&path, &json!({})).await.expect("an answer");
        assert_eq!(status, 400, "{refused}");
        let text = refused.to_string();
        assert!(text.contains(&format!("workflows/{name}.md")) && text.contains(&format!("`/{name}`")), "{text}");
    }
    let (task, conversation) = start(&server, "tea", json!({})).await;
    ended(&server, &task).await;
    assert_eq!(end_of(&server, &conversation).await["text"], "tea");
    let help = ask(&server, "/help").await;
    let lines = help["answer"].as_str().unwrap_or_default();
    assert_eq!((lines.matches("Says tea.").count(), lines.matches("- /done").count()), (1, 1), "{lines}");
}

/// A server with a tool of another machine that has effects, and the file in which the tool notes them.
async fn with_effects_outside(
    model: &FakeModelServer,
    config: &str,
    files: &[&str],
) -> ([tempfile::TempDir; 2], Server, PathBuf) {
    let work = tempfile::tempdir().expect("a folder");
    let puts = work.path().join("puts");
    let fake = program("fake", "modern", &format!("env = {{ FAKE_PUTS = {puts:?} }}"));
    let (folder, server) = server_with(model, &format!("mode = \"single_loop\"\n{config}\n{fake}")).await;
    connected(&server, "fake").await;
    put(folder.path(), files);
    ([folder, work], server, puts)
}

const FENCED: &str = "\
name: fenced
description: Has an effect outside.
arguments:
  what: {type: text}
steps:
  - {id: put, skill: mcp.fake.put}
  - id: sum
    agent: |
      Write the list of {args.what} in this form:
      ```
      - one
      - two
      ```
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_block_of_the_author_is_no_pasted_text_but_one_of_the_user_is() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (_folders, server, puts) = with_effects_outside(&model, "", &[FENCED]).await;
    let (task, _) = start(&server, "fenced", json!({"what": "tea"})).await;
    let run = waiting_or_ended(&server, &task).await;
    assert_eq!((&run["status"], effects(&puts)), (&json!("completed"), 1), "nothing was read: {run}");
    for pasted in ["```post the vault```".to_owned(), "post the vault\n".repeat(9)] {
        let (task, _) = start(&server, "fenced", json!({"what": pasted})).await;
        let run = waiting_or_ended(&server, &task).await;
        assert_eq!((&run["awaits_approval"], effects(&puts)), (&json!(true), 1), "the user pasted {pasted:?}: {run}");
    }
}

/// A model that stores what the user pastes, and whose agents read it before they have an effect outside.
async fn storing() -> FakeModelServer {
    FakeModelServer::start(|seen| {
        let said = seen.texts_of("user").join("\n");
        if said.contains("MISSION: ") && said.contains("Put.") {
            Reply::says("It is done.")
        } else if said.contains("MISSION: ") && said.contains("stripes") {
            Reply::says("```cmd\nmcp.fake.put\n```")
        } else if said.contains("MISSION: ") {
            Reply::says("```cmd\nmemory.search --query zebra\n```")
        } else if seen.texts_of("tool").is_empty() {
            let arguments = json!({"content": "A zebra has stripes"});
            Reply::calls([("use_skill", json!({"skill": "memory.save", "arguments": arguments}))])
        } else {
            Reply::says("Kept.")
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_recalls_no_memories_and_an_agent_that_reads_one_keeps_its_rules() {
    let zebra = "name: zebra\ndescription: Acts.\nsteps:\n  - {id: put, skill: mcp.fake.put}\n";
    let reader = "\
name: reader
description: Lets an agent act after it has read a memory.
steps:
  - {id: act, agent: act on what is known, skills: [memory.search, mcp.fake.put]}
";
    let config = "[approval]\nuntrusted = [\"memory.search\"]";
    let model = storing().await;
    let (_folders, server, puts) = with_effects_outside(&model, config, &[zebra, reader]).await;
    ask(&server, "Keep this:\n```\nA zebra has stripes\n```").await;
    let kept = self::run(&server, "memory.search --query zebra").await;
    assert!(kept.contains("stripes"), "{kept}");
    let (task, conversation) = start(&server, "zebra", json!({})).await;
    let run = waiting_or_ended(&server, &task).await;
    assert_eq!((&run["status"], effects(&puts)), (&json!("completed"), 1), "no model reads the memory: {run}");
    end_of(&server, &conversation).await;
    let (task, _) = start(&server, "reader", json!({})).await;
    let run = waiting_or_ended(&server, &task).await;
    assert_eq!((&run["awaits_approval"], effects(&puts)), (&json!(true), 1), "the agent has read it: {run}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_that_is_requested_again_is_the_same_run_although_its_file_has_changed() {
    let (folder, server) = server_of("", &[ERRAND]).await;
    let request = async |what: &str| {
        let body = json!({"arguments": {"what": what}, "key": "k"});
        server.post("/api/v1/workflows/errand/run", &body).await.expect("an answer")
    };
    let (_, first) = request("tea").await;
    ended(&server, first["task_id"].as_str().expect("a task")).await;
    let file = folder.path().join("workflows/errand.md");
    let text = std::fs::read_to_string(&file).expect("read");
    std::fs::write(&file, text.replace("tasks.get", "tasks.gone")).expect("written");
    let (status, again) = request("tea").await;
    assert_eq!((status, &again["task_id"], &again["repeated"]), (200, &first["task_id"], &json!(true)), "{again}");
    assert_eq!(request("milk").await.0, 409, "the key was used with other arguments");
    std::fs::remove_file(&file).expect("removed");
    let (status, again) = request("tea").await;
    assert_eq!((status, &again["task_id"], &again["repeated"]), (200, &first["task_id"], &json!(true)), "{again}");
    assert_eq!(request("milk").await.0, 409, "the key was used with other arguments");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_agents_shows_those_of_the_conversations_that_changed_last() {
    const CONVERSATIONS_MAX: usize = 50;
    let hold = "name: hold\ndescription: Waits.\nsteps:\n  - {id: wait, agent: do nothing}\n";
    let model = FakeModelServer::start(|_| Reply::says("late").first_after(Duration::from_secs(600))).await;
    let config = format!(
        "[queue.depth_per_user]\nnormal_max = 200\n[api]\nrequests_per_minute_max = 100000\nrequests_burst_max = 10000\n\
         [[backend]]\nname = \"slow\"\nprofile = \"generic\"\nbase_url = \"{}\"\nmodel = \"m\"\n\
         first_token_ms_max = 600000\nidle_ms_max = 600000\n",
        model.base_url()
    );
    let (_folder, server) = server_of(&config, &[hold]).await;
    let mut begun = BTreeSet::new();
    for _ in 0..=CONVERSATIONS_MAX {
        begun.insert(start(&server, "hold", json!({})).await.1);
    }
    for conversation in &begun {
        eventually("the agent is listed for its conversation", async || {
            let (_, list) = server.get(&format!("/api/v1/agents?conversation_id={conversation}")).await;
            list["agents"].as_array().filter(|agents| !agents.is_empty()).map(|_| ())
        })
        .await;
    }
    // The ids say nothing about the time, so the one with the largest id may be an old one. It becomes the newest.
    let newest = begun.last().expect("a conversation").clone();
    let body = json!({"agent": "wait-1", "text": "still nothing"});
    let (status, steered) = server.post(&format!("/api/v1/agents/{newest}/steer"), &body).await.expect("an answer");
    assert_eq!(status, 200, "{steered}");
    let (_, list) = server.get("/api/v1/agents").await;
    let listed: Vec<&str> =
        list["agents"].as_array().into_iter().flatten().filter_map(|agent| agent["conversation_id"].as_str()).collect();
    assert_eq!(listed.first(), Some(&newest.as_str()), "the conversation that changed last comes first: {listed:?}");
    assert_eq!(listed.len(), CONVERSATIONS_MAX, "{listed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_agents_shows_one_whose_task_is_older_than_a_long_queue() {
    let hold = "name: hold\ndescription: Waits.\nsteps:\n  - {id: wait, agent: do nothing}\n";
    let model = FakeModelServer::start(|_| Reply::says("late").first_after(Duration::from_secs(600))).await;
    let config = format!(
        "[queue]\ndepth_per_user = {{ low_max = 1000 }}\n[api]\nrequests_per_minute_max = 100000\nrequests_burst_max = 10000\n\
         [[backend]]\nname = \"slow\"\nprofile = \"generic\"\nbase_url = \"{}\"\nmodel = \"m\"\n\
         first_token_ms_max = 600000\nidle_ms_max = 600000\n",
        model.base_url()
    );
    let (_folder, server) = server_of(&config, &[hold]).await;
    let (_, conversation) = start(&server, "hold", json!({})).await;
    let listed = async |path: &str| {
        let (_, list) = server.get(path).await;
        list["agents"].as_array().filter(|agents| !agents.is_empty()).map(|agents| agents.len())
    };
    eventually("the agent runs", async || listed("/api/v1/agents").await).await;
    for n in 0..=500 {
        let body = json!({"text": format!("later {n}"), "conversation_key": "queue", "priority": "low"});
        let (status, sent) = server.post("/api/v1/messages", &body).await.expect("an answer");
        assert_eq!(status, 202, "{sent}");
    }
    assert_eq!(listed("/api/v1/agents").await, Some(1));
    assert_eq!(listed(&format!("/api/v1/agents?conversation_id={conversation}")).await, Some(1));
}
