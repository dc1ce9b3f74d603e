//! A model server that costs its driver next to nothing: it chooses among a few fixed replies by words in the request.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The requests for a reply that all servers of this process have received.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

pub fn requests() -> u64 {
    REQUESTS.load(Ordering::Relaxed)
}

/// Starts the server on a free port; it answers `delay` after each request.
pub async fn start(delay: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, delay));
        }
    });
    format!("http://{address}/v1")
}

async fn serve(mut stream: TcpStream, delay: Duration) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut buffer = Vec::new();
    loop {
        let (head, body) = read_message(&mut stream, &mut buffer).await?;
        let reply = if head.starts_with(b"POST") {
            REQUESTS.fetch_add(1, Ordering::Relaxed);
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            ("text/event-stream", stream_of(&String::from_utf8_lossy(&body)))
        } else {
            ("application/json", json!({"object": "list", "data": [{"id": "m", "object": "model"}]}).to_string())
        };
        let (kind, text) = reply;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", text.len());
        stream.write_all((head + &text).as_bytes()).await.ok()?;
    }
}

/// Reads one HTTP message with a `content-length`: its head and its body. Returns `None` at the end of the connection.
pub async fn read_message(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(Vec<u8>, Vec<u8>)> {
    loop {
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.and_then(|n| n.trim().parse().ok()).unwrap_or(0);
            if buffer.len() >= end + 4 + length {
                let rest = buffer.split_off(end + 4 + length);
                let mut message = std::mem::replace(buffer, rest);
                let body = message.split_off(end + 4);
                return Some((message, body));
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

fn stream_of(request: &str) -> String {
    // The system message explains results, so only what follows the first user message shows that a skill ran. Quotes in the
    // text of a message are escaped.
    let own = request.split_once("\"role\":\"user\"").map_or("", |(_, own)| own);
    let done = own.contains("\"role\":\"tool\"") || own.contains("<result");
    let orchestrates = request.contains("\"dispatch_agent\"");
    let dispatch =
        |id: &str| ("dispatch_agent", json!({"agent_id": id, "mission": "zmission", "skills": ["system.time"]}));
    let delta = match () {
        () if done => says("Done."),
        () if request.contains("zskill") => calls(&[("use_skill", json!({"skill": "system.time", "arguments": {}}))]),
        () if request.contains("zagents") && orchestrates => {
            calls(&[dispatch("one"), dispatch("two"), ("get_agent_results", json!({}))])
        }
        () if request.contains("zmission") => says("```cmd\nsystem.time\n```"),
        () => says("All is well."),
    };
    let finish = if delta.get("tool_calls").is_some() { "tool_calls" } else { "stop" };
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, "usage": usage});
        format!("data: {chunk}\n\n")
    };
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105});
    chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null)
        + &chunk(json!([{"index": 0, "delta": {}, "finish_reason": finish}]), Value::Null)
        + &chunk(json!([]), usage)
        + "data: [DONE]\n\n"
}

fn says(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn calls(calls: &[(&str, Value)]) -> Value {
    let call = |(n, (name, arguments)): (usize, &(&str, Value))| {
        json!({"index": n, "id": format!("call_{n}"), "type": "function",
            "function": {"name": name, "arguments": arguments.to_string()}})
    };
    json!({"role": "assistant", "tool_calls": calls.iter().enumerate().map(call).collect::<Vec<_>>()})
}
