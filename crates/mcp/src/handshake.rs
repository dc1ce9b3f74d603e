//! The beginning of a connection: Annie and the server agree on a revision, and Annie reads the list of tools.

use serde_json::{Value, json};

use crate::{
    McpError, ProtocolChoice,
    link::Link,
    reads::Method,
    rpc::{NO_METHOD, REVISION_LEGACY, REVISION_MODERN, Revision, client_info, is_legacy_revision},
    text::one_line,
};

/// How long a server may take to say that it does not know the newest revision, in milliseconds. Some do not answer at all
/// before `initialize`.
const DISCOVER_MS_MAX: u64 = 5_000;
/// The error of a server that does not serve the revision of a request.
const WRONG_REVISION: i64 = -32_022;
/// The most pages of a list of tools. A server that always names a further page must not keep Annie busy.
const PAGES_MAX: usize = 32;
/// The most tools of a server, also of those that are left out.
pub(crate) const TOOLS_MAX: usize = 512;
/// Length limit of what a server calls itself, in bytes.
const SERVER_BYTES_MAX: usize = 100;

/// What a connection has agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) revision: Revision,
    /// The revision's date.
    pub(crate) version: String,
    /// What the server calls itself, with its version.
    pub(crate) server: String,
    /// The methods that read what it has beside tools.
    pub(crate) reads: Vec<Method>,
}

/// Agrees on a revision.
pub(crate) async fn agree(link: &Link, choice: ProtocolChoice, timeout_ms: u64) -> Result<Agreed, McpError> {
    if choice == ProtocolChoice::Legacy {
        return initialize(link, timeout_ms).await;
    }
    let is_fallback_allowed = choice == ProtocolChoice::Auto;
    let ms_max = if is_fallback_allowed { timeout_ms.min(DISCOVER_MS_MAX) } else { timeout_ms };
    match discover(link, ms_max).await {
        Ok(Some(agreed)) => Ok(agreed),
        Ok(None) if is_fallback_allowed => initialize(link, timeout_ms).await,
        Ok(None) => Err(McpError::Protocol(format!("it does not support the revision {REVISION_MODERN}"))),
        Err(why) if is_fallback_allowed && may_be_older(&why) => match initialize(link, timeout_ms).await {
            // A server that started slowly has answered the first request by now, and serves the newest revision.
            Err(refused @ McpError::Refused { code: WRONG_REVISION, .. }) => {
                discover(link, timeout_ms).await?.ok_or(refused)
            }
            agreed => agreed,
        },
        Err(why) => Err(why),
    }
}

/// Asks a server for the newest revision. Returns `None` if it does not support it.
async fn discover(link: &Link, ms_max: u64) -> Result<Option<Agreed>, McpError> {
    let found = link.request(Revision::Modern, "server/discover", json!({}), ms_max).await.result?;
    Ok(supports_modern(&found).then(|| Agreed {
        revision: Revision::Modern,
        version: REVISION_MODERN.to_owned(),
        server: name_of(&found["_meta"]["io.modelcontextprotocol/serverInfo"]),
        reads: Method::offered(&found["capabilities"]),
    }))
}

fn supports_modern(found: &Value) -> bool {
    found["supportedVersions"].as_array().is_some_and(|versions| versions.iter().any(|v| v == REVISION_MODERN))
}

/// Whether a server that failed this way may know an older revision only.
fn may_be_older(why: &McpError) -> bool {
    match why {
        McpError::Refused { .. } | McpError::Timeout { .. } | McpError::Protocol(_) | McpError::SessionGone => true,
        McpError::Http(status) => (400..500).contains(status) && !matches!(status, 401 | 403 | 429),
        _ => false,
    }
}

async fn initialize(link: &Link, timeout_ms: u64) -> Result<Agreed, McpError> {
    let params = json!({"protocolVersion": REVISION_LEGACY, "capabilities": {}, "clientInfo": client_info()});
    let found = link.request(Revision::Legacy, "initialize", params, timeout_ms).await.result?;
    let version = found["protocolVersion"].as_str().unwrap_or_default();
    if !is_legacy_revision(version) {
        let version = one_line(version, SERVER_BYTES_MAX);
        return Err(McpError::Protocol(format!("it wants the unknown revision {version:?}")));
    }
    link.agreed(version);
    link.notify(Revision::Legacy, "notifications/initialized", &json!({}), timeout_ms).await?;
    let (server, reads) = (name_of(&found["serverInfo"]), Method::offered(&found["capabilities"]));
    Ok(Agreed { revision: Revision::Legacy, version: version.to_owned(), server, reads })
}

fn name_of(info: &Value) -> String {
    let text = |key: &str| info[key].as_str().unwrap_or_default();
    one_line(&format!("{} {}", text("name"), text("version")), SERVER_BYTES_MAX)
}

/// All tools, as the server describes them.
pub(crate) async fn list_tools(link: &Link, revision: Revision, timeout_ms: u64) -> Result<Vec<Value>, McpError> {
    let (mut tools, mut cursor) = (Vec::new(), None::<String>);
    for _ in 0..PAGES_MAX {
        let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
        let page = match link.request(revision, "tools/list", params, timeout_ms).await.result {
            // A server without tools need not have the method.
            Err(McpError::Refused { code: NO_METHOD, .. }) => return Ok(tools),
            page => page?,
        };
        let listed = page["tools"].as_array().cloned();
        tools.extend(listed.ok_or_else(|| McpError::Protocol("a list of tools has no tools".to_owned()))?);
        if tools.len() > TOOLS_MAX {
            return Err(McpError::Protocol(format!("it has more than {TOOLS_MAX} tools")));
        }
        cursor = page["nextCursor"].as_str().filter(|cursor| !cursor.is_empty()).map(str::to_owned);
        if cursor.is_none() {
            return Ok(tools);
        }
    }
    Err(McpError::Protocol(format!("its list of tools has more than {PAGES_MAX} pages")))
}
